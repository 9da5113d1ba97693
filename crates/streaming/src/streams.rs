//! The streams of a remote command.

use apiserver_core::query::{Query, encode_query};

/// Which streams a command has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The command reads input.
    pub stdin: bool,
    /// Its output is wanted.
    pub stdout: bool,
    /// Its error output is wanted.
    pub stderr: bool,
    /// It has a terminal, which can be resized.
    pub tty: bool,
}

impl Streams {
    /// Reads the query of an exec or attach.
    pub fn of(query: &Query) -> Self {
        let flag = |name| query.is_set(name);
        Self { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr"), tty: flag("tty") }
    }

    /// The query for a kubelet, which has other names for them, and for the command.
    pub fn for_kubelet<'a>(self, command: impl Iterator<Item = &'a str>) -> String {
        let flags = [("error", self.stderr), ("input", self.stdin), ("output", self.stdout), ("tty", self.tty)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, "1".to_owned()));
        encode_query(command.map(|word| ("command", word.to_owned())).chain(flags))
    }
}
