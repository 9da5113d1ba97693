//! Log lines as upstream's klog writes them.

use crate::output::write_err;

/// The level of `-v`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(pub i64);

/// Writes a line with klog's header; `severity` is `I`, `W` or `E`.
pub fn log_line(severity: char, file: &str, text: &str) {
    let now = jiff::Zoned::now();
    let time = now.strftime("%m%d %H:%M:%S.%6f");
    write_err(&format!("{severity}{time} {:7} {file}] {text}\n", std::process::id()));
}
