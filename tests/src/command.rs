//! Runs commands and captures their output.

use std::process::{Command, Stdio};

/// The output and exit code of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The command line, for messages.
    pub line: String,
    /// The exit code; -1 for a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert!(self.code == 0, "{} ended with {}:\n{}\n{}", self.line, self.code, self.stdout, self.stderr);
        self.stdout
    }

    /// Everything that a command that must fail said.
    #[track_caller]
    pub fn expect_failure(self) -> String {
        assert!(self.code != 0, "{} succeeded:\n{}", self.line, self.stdout);
        self.stdout + &self.stderr
    }
}

/// Runs a command to its end, with `input` as its standard input.
#[track_caller]
pub fn run_command(command: &mut Command, input: Option<&str>) -> CommandOutput {
    let line = format!("{command:?}");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {line}: {error}"));
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A command that does not read its input says so by its exit code.
        let _ = std::io::Write::write_all(&mut stdin, text.as_bytes());
    }
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{line}: {error}"));
    CommandOutput {
        line,
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
