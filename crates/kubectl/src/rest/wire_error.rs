//! Errors of connections in the words of Go's HTTP client.

use std::{error::Error, io};

use crate::files::os_error;

/// Whether the connection ended or was reset before the answer.
pub fn is_lost_connection(error: &hyper::Error) -> bool {
    let kind = io_source(error).map(io::Error::kind);
    error.is_incomplete_message()
        || error.is_canceled()
        || matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof))
}

/// The text of an error before the answer.
pub fn exchange_error_text(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {cause}");
    }
    io_text(error)
}

/// The text of an error within a body.
pub fn body_error_text(error: &hyper::Error) -> String {
    match io_source(error) {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
        Some(error) if error.raw_os_error().is_none() => error.to_string(),
        None if error.is_incomplete_message() => "unexpected EOF".to_owned(),
        _ => io_text(error),
    }
}

/// The text of the operating system, or that of the error.
fn io_text(error: &hyper::Error) -> String {
    match io_source(error) {
        Some(source) if source.raw_os_error().is_some() => format!("read: {}", os_error(source)),
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

fn io_source(error: &hyper::Error) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(found) = source.downcast_ref() {
            return Some(found);
        }
        next = source.source();
    }
    None
}
