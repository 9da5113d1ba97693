//! Writing to stdout and stderr; a closed pipe ends the program as it ends other tools.

use std::io::{IsTerminal, Write};

/// Writes to stdout.
pub fn write_out(text: &str) {
    write_out_bytes(text.as_bytes());
}

/// Writes bytes to stdout.
pub fn write_out_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Writes to stderr; a closed stderr is ignored.
pub fn write_err(text: &str) {
    // There is no place left to report that to.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Whether stdout is a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Writes formatted text and a line break to stdout.
#[macro_export]
macro_rules! outln {
    ($($argument:tt)*) => { $crate::output::write_out(&format!("{}\n", format_args!($($argument)*))) };
}

/// Writes formatted text and a line break to stderr.
#[macro_export]
macro_rules! errln {
    ($($argument:tt)*) => { $crate::output::write_err(&format!("{}\n", format_args!($($argument)*))) };
}

/// Makes control characters of server data visible, so that they do not reach a terminal.
pub fn escape_terminal(text: &str) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        return text.to_owned();
    }
    text.replace('\u{1b}', "^[").replace('\r', "\\r")
}

/// Writes bytes to stderr; fails when it is closed.
pub fn write_err_bytes(bytes: &[u8]) -> crate::errors::CommandResult {
    let outcome = std::io::stderr().lock().write_all(bytes);
    outcome.map_err(|error| crate::errors::CommandError::new(crate::files::os_error(&error)))
}
