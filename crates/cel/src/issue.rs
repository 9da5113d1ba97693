//! Parse and type-check issues, formatted as by `cel-go` with the source line and a pointer at the column.

use std::fmt;

use crate::ast::NO_OFFSET;

/// Maximum number of reported issues.
const MAX_ISSUES: usize = 100;
/// Longest source line included in a report.
const MAX_LINE_LENGTH: usize = 16_384;

/// All issues of an expression. [`Display`](fmt::Display) writes the text that users see.
#[derive(Clone, Debug)]
pub struct Issues {
    source: String,
    issues: Vec<Issue>,
    total: usize,
}

/// A parse or type-check error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The message, without its location.
    pub message: String,
    /// Line number, starting at 1; `None` if the issue concerns the expression as a whole.
    pub line: Option<usize>,
    /// Number of characters before it in the line.
    pub column: usize,
}

impl Issues {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.into(), issues: Vec::new(), total: 0 }
    }

    pub(crate) fn report_error(&mut self, offset: u32, message: impl Into<String>) {
        self.total += 1;
        if self.total > MAX_ISSUES {
            return;
        }
        let (line, column) = if offset == NO_OFFSET { (None, 0) } else { self.line_and_column(offset as usize) };
        self.issues.push(Issue { message: message.into(), line, column });
    }

    fn line_and_column(&self, offset: usize) -> (Option<usize>, usize) {
        let before = &self.source[..offset.min(self.source.len())];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (Some(before.matches('\n').count() + 1), before[start..].chars().count())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub(crate) fn into_sorted(mut self) -> Self {
        self.issues.sort_by_key(|issue| (issue.line, issue.column));
        self
    }

    /// Iterates over the issues in source order.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter()
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write_issue(issue, &self.source, f)?;
        }
        match self.total.checked_sub(MAX_ISSUES) {
            Some(more) if more > 0 => write!(f, "\n{more} more errors were truncated"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Issues {}

fn write_issue(issue: &Issue, source: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(line) = issue.line else { return write!(f, "ERROR: <input>:-1:0: {}", issue.message) };
    if source.is_empty() {
        return write!(f, "ERROR: <input>:1:0: {}", issue.message);
    }
    write!(f, "ERROR: <input>:{line}:{}: {}", issue.column + 1, issue.message)?;
    let Some(text) = source.split('\n').nth(line - 1).filter(|text| text.len() <= MAX_LINE_LENGTH) else {
        return Ok(());
    };
    let mut pointer = String::new();
    let mut rest = text.chars();
    for c in rest.by_ref().take(issue.column) {
        pointer.push(if c.len_utf8() > 1 { '．' } else { '.' });
    }
    pointer.push(if rest.next().is_some_and(|c| c.len_utf8() > 1) { '＾' } else { '^' });
    write!(f, "\n | {}\n | {pointer}", text.replace('\t', " "))
}
