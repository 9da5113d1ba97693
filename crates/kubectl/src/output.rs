//! Writing to stdout and stderr; a closed pipe ends the program as it ends other tools. Control characters in texts, which
//! may come from a server, do not reach a terminal.

use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
    sync::LazyLock,
};

static STDOUT_IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stdout().is_terminal());
static STDERR_IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stderr().is_terminal());

/// Writes text to stdout.
pub fn write_out(text: &str) {
    write_out_bytes(text_for(*STDOUT_IS_TERMINAL, text).as_bytes());
}

/// Writes bytes to stdout as they are.
pub fn write_out_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Writes text to stderr; a closed stderr is ignored.
pub fn write_err(text: &str) {
    // There is no place left to report that to.
    let _ = std::io::stderr().lock().write_all(text_for(*STDERR_IS_TERMINAL, text).as_bytes());
}

/// The text as it may be written: as it is, or with its control characters made visible for a terminal.
fn text_for(terminal: bool, text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !terminal || !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let visible = |c: char| match c {
        '\u{1b}' => "^[".to_owned(),
        '\r' => "\\r".to_owned(),
        c if is_harmful(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    Cow::Owned(text.chars().map(visible).collect())
}

/// Whether stdout is a terminal.
pub fn is_terminal() -> bool {
    *STDOUT_IS_TERMINAL
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_visible_on_a_terminal_only() {
        let text = "a\u{1b}]0;t\u{7}\u{9b}2J\r\n\tb";
        assert_eq!(text_for(true, text), "a^[]0;t\\u0007\\u009b2J\\r\n\tb");
        assert_eq!(text_for(false, text), text);
    }
}
