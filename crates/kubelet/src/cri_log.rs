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
    /// The text, in whatever encoding the container writes.
    pub text: &'a [u8],
}

/// Parses a line without its newline; `None` if it is malformed.
pub fn parse_log_line(line: &[u8]) -> Option<LogLine<'_>> {
    let (time, rest) = split_field(line)?;
    let (stream, rest) = split_field(rest)?;
    let (tags, text) = split_field(rest).unwrap_or((rest, b""));
    let stderr = match stream {
        b"stdout" => false,
        b"stderr" => true,
        _ => return None,
    };
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    Some(LogLine { time: std::str::from_utf8(time).ok()?, stderr, partial, text })
}

fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..at], &line[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_is_split_into_fields() {
        let line = parse_log_line(b"2026-01-01T00:00:00.5Z stdout F hello  world").unwrap();
        assert_eq!(
            line,
            LogLine { time: "2026-01-01T00:00:00.5Z", stderr: false, partial: false, text: b"hello  world" }
        );
        assert!(parse_log_line(b"2026-01-01T00:00:00.5Z stderr P half").unwrap().partial);
        assert_eq!(parse_log_line(b"2026-01-01T00:00:00.5Z stdout F").unwrap().text, b"");
        assert_eq!(parse_log_line(b"2026-01-01T00:00:00.5Z stdout F \xff\xfe").unwrap().text, b"\xff\xfe");
        assert_eq!(parse_log_line(b"nonsense"), None);
        assert_eq!(parse_log_line(b"a b c"), None);
    }
}
