//! The local terminal: raw mode, which is undone at any end, and its size.

use std::os::fd::BorrowedFd;

use rustix::termios::{self, OptionalActions, Termios};

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

fn stdin() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Whether standard input is a terminal.
pub fn is_terminal_input() -> bool {
    termios::isatty(stdin())
}

/// The size of the terminal that stdout is.
pub fn terminal_size() -> Option<TerminalSize> {
    let size = termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(TerminalSize { width: size.ws_col, height: size.ws_row })
}

/// A terminal in raw mode; dropping it restores the mode.
#[derive(Debug)]
pub struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    /// Puts the terminal of standard input in raw mode, if it is one.
    pub fn enter() -> Self {
        let before = termios::tcgetattr(stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // A terminal that refuses stays as it is.
            let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &raw);
        }
        RawTerminal { before }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal may be gone.
            let _ = termios::tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}
