//! Terminal output of steps and errors: one line per step with its time, coloured only on a terminal.

use std::io::{self, IsTerminal, Write};

/// Standard output, as a person or a pipe reads it.
#[derive(Clone, Copy, Debug)]
pub struct StepScreen {
    terminal: bool,
}

impl StepScreen {
    /// Looks at what standard output is.
    pub fn new() -> Self {
        Self { terminal: io::stdout().is_terminal() }
    }

    /// A step began. Shown only on a terminal, where the line is replaced at its end.
    pub fn began(&self, step: &str) {
        if self.terminal {
            self.print(&format!("  {step} …"));
        }
    }

    /// A step is done.
    pub fn done(&self, step: &str, detail: &str, seconds: f64) {
        let mark = self.paint("32", "✓");
        let time = self.paint("2", &format!("{seconds:.2} s"));
        self.print(&format!("{}{mark} {step:<24}{detail:<44} {time}\n", self.fresh_line()));
    }

    /// A step that began is not worth a line.
    pub fn forget(&self) {
        self.print(self.fresh_line());
    }

    /// A step failed; what went wrong is told by [`error`].
    pub fn failed(&self, step: &str) {
        let mark = self.paint("31", "✗");
        self.print(&format!("{}{mark} {step}\n", self.fresh_line()));
    }

    /// Something that works less well than it should.
    pub fn warning(&self, text: &str) {
        self.print(&format!("{}{} {text}\n", self.fresh_line(), self.paint("33", "!")));
    }

    /// A line of text.
    pub fn line(&self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// Text in a colour, on a terminal.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.terminal { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn fresh_line(&self) -> &'static str {
        if self.terminal { "\r\x1b[K" } else { "" }
    }

    fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        // A closed output is not an error.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Tells an error with everything that caused it.
pub fn error(error: &anyhow::Error) {
    let red = if io::stderr().is_terminal() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{}ferry:{} {error:#}", red.0, red.1);
}
