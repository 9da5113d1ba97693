//! Log lines of requests and answers at `-v=6` and above.

use std::time::Duration;

use api::json::go_quote;
use http::HeaderMap;
use hyper::body::Incoming;

use super::RestRequest;
use crate::klog::{LogLevel, log_line};

fn header_block(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| {
            let name = canonical_name(name.as_str());
            let value = String::from_utf8_lossy(value.as_bytes());
            format!("\t{name}: {}\n", mask_value(&name, &value))
        })
        .collect();
    lines.sort();
    format!("<\n{} >", lines.concat())
}

/// The name of a header with capitals.
fn canonical_name(name: &str) -> String {
    let capital = |word: &str| {
        let mut characters = word.chars();
        characters.next().map(|first| first.to_ascii_uppercase().to_string() + characters.as_str()).unwrap_or_default()
    };
    name.split('-').map(capital).collect::<Vec<_>>().join("-")
}

fn mask_value(name: &str, value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, _)) if name == "Authorization" => format!("{scheme} <masked>"),
        _ => value.to_owned(),
    }
}

/// Logs a request before it is sent.
pub fn log_request(level: LogLevel, request: &RestRequest, url: &str, headers: &HeaderMap) {
    let verb = request.method.as_str();
    match level.0 {
        ..7 => {}
        7 | 8 => log_line(
            'I',
            "round_trippers.go:527",
            &format!("\"Request\" verb=\"{verb}\" url={} headers={}", go_quote(url), header_block(headers)),
        ),
        _ => {
            let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                let name = canonical_name(name.as_str());
                let value = mask_value(&name, &String::from_utf8_lossy(value.as_bytes()));
                format!(" -H {}", go_quote(&format!("{name}: {value}")))
            };
            let all: String = headers.iter().map(header).collect();
            let text = format!("\"Request\" curlCommand=<\n\tcurl -v -X{verb} {all} '{url}'\n >");
            log_line('I', "round_trippers.go:527", &text);
        }
    }
}

/// Logs an answer.
pub fn log_response(
    level: LogLevel,
    request: &RestRequest,
    url: &str,
    response: Option<&http::Response<Incoming>>,
    elapsed: Duration,
) {
    if level.0 < 6 {
        return;
    }
    let status = response.map(|response| {
        let status = response.status();
        format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())
    });
    let mut text = "\"Response\"".to_owned();
    if level.0 != 7 && level.0 != 8 {
        text += &format!(" verb=\"{}\" url={}", request.method, go_quote(url));
    }
    text += &format!(" status=\"{}\"", status.unwrap_or_default());
    if level.0 >= 8
        && let Some(response) = response
    {
        text += &format!(" headers={}", header_block(response.headers()));
    }
    text += &format!(" milliseconds={}", elapsed.as_millis());
    log_line('I', "round_trippers.go:632", &text);
}

/// Logs a body; below `-v=10` long ones are cut.
pub fn log_body(level: LogLevel, title: &str, body: &[u8]) {
    if level.0 < 8 || body.is_empty() {
        return;
    }
    let limit = if level.0 >= 10 { usize::MAX } else { 1024 };
    let text = String::from_utf8_lossy(body);
    let cut: String = text.chars().take(limit).collect();
    let rest = text.chars().count().saturating_sub(limit);
    let note = if rest > 0 { format!(" [truncated {rest} chars]") } else { String::new() };
    log_line('I', "helper.go:246", &format!("{} body={}{note}", go_quote(title), go_quote(&cut)));
}
