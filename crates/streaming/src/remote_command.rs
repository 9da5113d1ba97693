//! The streams of a remote command.

use apiserver_core::query::{Query, encode_query};

/// The requested streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCommandOptions {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

impl RemoteCommandOptions {
    /// Parses the query of exec or attach.
    pub fn from_query(query: &Query) -> Self {
        let flag = |name| query.is_set(name);
        Self { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr"), tty: flag("tty") }
    }

    /// Returns the kubelet's query for the streams and the command.
    pub fn kubelet_query<'a>(self, command: impl Iterator<Item = &'a str>) -> String {
        let flags = [("error", self.stderr), ("input", self.stdin), ("output", self.stdout), ("tty", self.tty)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, "1".to_owned()));
        encode_query(command.map(|word| ("command", word.to_owned())).chain(flags))
    }
}
