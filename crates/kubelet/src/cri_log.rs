//! Parser for lines of CRI container logs: timestamp, stream, tags, text.

/// A parsed log line.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// Timestamp in RFC 3339.
    pub time: &'a str,
    /// Whether the stream is stderr.
    pub stderr: bool,
    /// Whether the line continues in the next entry.
    pub partial: bool,
    /// The text.
    pub text: &'a str,
}

/// Parses a line without its newline; `None` if it is malformed.
pub fn parse_log_line(line: &str) -> Option<LogLine<'_>> {
    let (time, rest) = line.split_once(' ')?;
    let (stream, rest) = rest.split_once(' ')?;
    let (tags, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let stderr = match stream {
        "stdout" => false,
        "stderr" => true,
        _ => return None,
    };
    Some(LogLine { time, stderr, partial: tags.split(':').next() == Some("P"), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_is_split_into_fields() {
        let line = parse_log_line("2026-01-01T00:00:00.5Z stdout F hello  world").unwrap();
        assert_eq!(
            line,
            LogLine { time: "2026-01-01T00:00:00.5Z", stderr: false, partial: false, text: "hello  world" }
        );
        assert!(parse_log_line("2026-01-01T00:00:00.5Z stderr P half").unwrap().partial);
        assert_eq!(parse_log_line("2026-01-01T00:00:00.5Z stdout F").unwrap().text, "");
        assert_eq!(parse_log_line("nonsense"), None);
        assert_eq!(parse_log_line("a b c"), None);
    }
}
