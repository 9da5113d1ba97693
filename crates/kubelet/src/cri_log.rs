//! Lines of the logs that CRI runtimes write: a time, a stream, tags, and the text.

/// One line as it is in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// When it was written, in RFC 3339.
    pub time: &'a str,
    /// Whether it was written to the error output.
    pub stderr: bool,
    /// Whether the container's own line goes on in the next one.
    pub partial: bool,
    /// The container's words.
    pub text: &'a str,
}

/// Takes a line apart, without its newline; nothing if it is not a log line.
pub fn parse(line: &str) -> Option<Line<'_>> {
    let (time, rest) = line.split_once(' ')?;
    let (stream, rest) = rest.split_once(' ')?;
    let (tags, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let stderr = match stream {
        "stdout" => false,
        "stderr" => true,
        _ => return None,
    };
    Some(Line { time, stderr, partial: tags.split(':').next() == Some("P"), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = parse("2026-01-01T00:00:00.5Z stdout F hello  world").unwrap();
        assert_eq!(line, Line { time: "2026-01-01T00:00:00.5Z", stderr: false, partial: false, text: "hello  world" });
        assert!(parse("2026-01-01T00:00:00.5Z stderr P half").unwrap().partial);
        assert_eq!(parse("2026-01-01T00:00:00.5Z stdout F").unwrap().text, "");
        assert_eq!(parse("nonsense"), None);
        assert_eq!(parse("a b c"), None);
    }
}
