//! Answers: whole ones, streams of them, and the errors they stand for.

use std::time::Instant;

use api::Value;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{LogLevel, RestRequest, block_on, log_line, wire_error::body_error_text};
use crate::errors::{CommandError, CommandResult, StatusError, status_error};

/// The longest event that upstream's client takes.
const LONGEST_EVENT: usize = 16 << 20;

const EVENT_TOO_LONG: &str =
    "unable to decode an event from the watch stream: object to decode was longer than maximum allowed size";

/// A whole answer.
#[derive(Clone, Debug)]
pub struct RestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl RestResponse {
    /// The body as JSON.
    pub fn json(&self) -> CommandResult<Value> {
        serde_json::from_slice(&self.body).map_err(|error| match api::json::parse(&self.body) {
            Err(syntax) => CommandError::new(syntax.to_string()),
            Ok(_) => CommandError::new(format!("couldn't decode the server's answer: {error}")),
        })
    }

    /// Whether the body is a text for people.
    fn is_text(&self) -> bool {
        let content_type = self.headers.get(http::header::CONTENT_TYPE).map(|value| value.as_bytes());
        content_type.is_none_or(|content_type| content_type.is_empty() || content_type.starts_with(b"text/"))
    }

    /// Fails unless the status is a success.
    pub fn check_status(&self, request: &RestRequest) -> CommandResult {
        if self.status.is_success() {
            return Ok(());
        }
        if !request.opaque_errors
            && let Ok(status) = serde_json::from_slice::<Value>(&self.body)
            && status.get("kind").and_then(Value::as_str) == Some("Status")
            && status.get("status").and_then(Value::as_str) != Some("Success")
        {
            return Err(CommandError::Status(Box::new(StatusError { status })));
        }
        let text = if self.is_text() { &self.body[..] } else { b"" };
        Err(generic_status(self.status.as_u16(), request.method.as_str(), text))
    }
}

/// The error of an answer without a `Status`.
pub fn generic_status(code: u16, verb: &str, body: &[u8]) -> CommandError {
    let body = String::from_utf8_lossy(body);
    let server = if body.trim().is_empty() { "unknown" } else { body.trim() };
    let (reason, message) = match code {
        409 if verb == "POST" => ("AlreadyExists", "the server reported a conflict".to_owned()),
        409 => ("Conflict", "the server reported a conflict".to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        400 => ("BadRequest", "the server rejected our request for an unknown reason".to_owned()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", server.to_owned()),
        406 if server == "unknown" => (
            "NotAcceptable",
            "the server was unable to respond with a content type that the client supports".to_owned(),
        ),
        406 => ("NotAcceptable", server.to_owned()),
        415 => ("UnsupportedMediaType", server.to_owned()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
        422 => ("Invalid", "the server rejected our request due to an error in our request".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        code if code >= 500 => (
            "InternalError",
            format!(
                "an error on the server ({}) has prevented the request from succeeding",
                api::json::go_quote(server)
            ),
        ),
        code => ("", format!("the server responded with the status code {code} but did not return more information")),
    };
    status_error(code, reason, message)
}

/// The text of a `Warning` header.
pub fn parse_warning(value: &str) -> Option<String> {
    let rest = value.strip_prefix("299 ")?;
    let quoted = rest.split_once(' ')?.1.trim();
    let inner = quoted.strip_prefix('"')?;
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            '"' => break,
            other => text.push(other),
        }
    }
    Some(text)
}

/// A body that is read as it comes.
#[derive(Debug)]
pub struct BodyStream {
    body: Incoming,
    buffer: BytesMut,
    deadline: Option<Instant>,
    level: LogLevel,
}

impl BodyStream {
    pub(super) fn new(body: Incoming, deadline: Option<Instant>, level: LogLevel) -> Self {
        BodyStream { body, buffer: BytesMut::new(), deadline, level }
    }

    /// Waits for the next bytes; `None` at the end.
    pub async fn next_bytes(&mut self) -> CommandResult<Option<Bytes>> {
        loop {
            let frame = match self.deadline {
                Some(deadline) => {
                    let limit = tokio::time::timeout_at(deadline.into(), self.body.frame()).await;
                    limit.map_err(|_| CommandError::new(STREAM_TIMED_OUT))?
                }
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(CommandError::new(body_error_text(&error))),
            }
        }
    }

    /// Waits for the next line, without its line break; `None` at the end.
    async fn next_line(&mut self) -> CommandResult<Option<Bytes>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(searched + at + 1);
                line.truncate(searched + at);
                return Ok(Some(line.freeze()));
            }
            searched = self.buffer.len();
            if searched > LONGEST_EVENT {
                return Err(CommandError::new(EVENT_TOO_LONG));
            }
            match self.next_bytes().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(self.buffer.split().freeze())),
            }
        }
    }

    /// Waits for the next line with its line break; a long line comes in parts. `None` at the end.
    pub async fn next_log_line(&mut self) -> CommandResult<Option<Bytes>> {
        const LONG: usize = 1 << 20;
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.buffer.split_to(searched + at + 1).freeze()));
            }
            searched = self.buffer.len();
            if searched >= LONG {
                return Ok(Some(self.buffer.split().freeze()));
            }
            match self.next_bytes().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(self.buffer.split().freeze())),
            }
        }
    }

    /// Waits for the next watch event, at most `limit`; `None` at the end or after the limit.
    pub fn next_event(&mut self, limit: Option<std::time::Duration>) -> CommandResult<Option<Value>> {
        let line = block_on(async {
            match limit {
                Some(limit) => tokio::time::timeout(limit, self.next_line()).await.unwrap_or(Ok(None)),
                None => self.next_line().await,
            }
        });
        let line = line.inspect_err(|error| {
            if self.level >= LogLevel(5)
                && let Some(cause) = error.to_string().strip_prefix("unable to decode an event from the watch stream: ")
            {
                let line =
                    format!("\"Unable to decode an event from the watch stream\" err={}", api::json::go_quote(cause));
                log_line('I', "streamwatcher.go:123", &line);
            }
        });
        match line? {
            Some(line) => serde_json::from_slice(&line).map(Some).map_err(|error| {
                CommandError::new(format!("unable to decode an event from the watch stream: {error}"))
            }),
            None => Ok(None),
        }
    }
}

/// Go's text for a stream that ran into `--request-timeout`.
pub const STREAM_TIMED_OUT: &str = "unable to decode an event from the watch stream: net/http: request canceled (Client.Timeout or context cancellation while reading body)";
