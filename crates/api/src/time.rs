//! Times as the API writes them, and ages as tables print them.

use jiff::Timestamp;

/// `2026-01-02T03:04:05Z`.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-01-02T03:04:05.123456Z`.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads an RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How long ago `since` was, in upstream's short form; `<unknown>` for what is no time.
pub fn age(since: Option<&str>, now: Timestamp) -> String {
    match since.and_then(parse) {
        Some(since) => human(now.as_second() - since.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// A duration in seconds in upstream's short form: `2m30s`, `5h`, `3d4h`.
pub fn human(seconds: i64) -> String {
    let pair = |big: i64, unit: char, rest: i64, small: char| {
        if rest == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{rest}{small}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn durations_read_as_upstream_prints_them() {
        let cases = [(0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"), (3 * 3600 + 60, "3h1m")];
        for (seconds, want) in cases {
            assert_eq!(human(seconds), want);
        }
        assert_eq!(human(50 * 3600), "2d2h");
        assert_eq!(human(-5), "<invalid>");
    }
}
