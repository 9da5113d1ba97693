//! Request deadlines: the configured timeout or the client's shorter `timeout`.

use std::{future::Future, time::Duration};

use api::{Map, Value, status::Status};
use apiserver_core::query::Query;

use crate::Server;

/// The deadline of a request; watches and streams have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDeadline(Option<Duration>);

/// The deadline of a request.
pub fn request_deadline(
    server: &Server,
    verb: &str,
    subresource: &str,
    query: &Query,
) -> Result<RequestDeadline, Status> {
    if verb == "watch" || apiserver_core::request::is_streaming(subresource) {
        return Ok(RequestDeadline(None));
    }
    let most = server.shared.options.load.request_timeout;
    let Some(text) = query.get("timeout") else { return Ok(RequestDeadline(Some(most))) };
    let wanted = parse_go_duration(text).map_err(|why| {
        Status::bad_request(format!("invalid timeout specified in the request URL - time: {why} {text:?}"))
    })?;
    Ok(RequestDeadline(Some(if wanted.is_zero() { most } else { wanted.min(most) })))
}

impl RequestDeadline {
    /// Runs a future; 504 if it exceeds the deadline.
    pub async fn run_within<T>(self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        match self.0 {
            Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(timeout_status())),
            None => work.await,
        }
    }
}

fn timeout_status() -> Status {
    let message = "Timeout: request did not complete within the allotted timeout".to_owned();
    Status::new(504, "Timeout", message).with_details(Value::Object(Map::new()))
}

/// Parses a Go duration such as `1m30s` or `500ms`; a negative one is zero.
fn parse_go_duration(text: &str) -> Result<Duration, &'static str> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err("invalid duration");
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or("missing unit in duration")?;
        let amount: f64 = rest[..digits].parse().map_err(|_| "invalid duration")?;
        let end = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| at + digits);
        let unit = match &rest[digits..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err("invalid duration"),
        };
        seconds += amount * unit;
        rest = &rest[end..];
    }
    Ok(Duration::try_from_secs_f64((sign * seconds).max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        assert_eq!(parse_go_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_go_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_go_duration("-5s"), Ok(Duration::ZERO));
        assert_eq!(parse_go_duration("5"), Err("missing unit in duration"));
        assert_eq!(parse_go_duration("x"), Err("invalid duration"));
        assert_eq!(parse_go_duration("1y"), Err("invalid duration"));
        assert!(parse_go_duration("99999999999999999999h").is_ok());
    }

    #[tokio::test]
    async fn late_request_gets_504() {
        let late = RequestDeadline(Some(Duration::ZERO));
        let outcome = late.run_within(async { std::future::pending::<Result<(), Status>>().await }).await;
        assert_eq!(outcome.unwrap_err().code, 504);
    }
}
