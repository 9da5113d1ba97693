//! `--raw`: requests to a path of the server.

use api::json::go_quote;

use crate::{
    errors::CommandResult,
    files,
    output::write_out_bytes,
    rest::{RestRequest, block_on},
    session::Session,
};

/// Checks a raw path.
pub fn check_path(path: &str) -> CommandResult {
    if !path.starts_with('/') && !path.contains("://") {
        crate::bail!("--raw must be a valid URL path: parse {}: invalid URI for request", go_quote(path));
    }
    Ok(())
}

/// The path with characters that a URL cannot have as escapes; the query keeps its form.
fn encode_path(path: &str) -> String {
    const FORBIDDEN: percent_encoding::AsciiSet = percent_encoding::CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'<')
        .add(b'>')
        .add(b'`')
        .add(b'{')
        .add(b'}')
        .add(b'|')
        .add(b'\\')
        .add(b'^');
    percent_encoding::utf8_percent_encode(path, &FORBIDDEN).to_string()
}

/// Sends a request to a raw path and prints the answer.
pub fn send(session: &Session, method: http::Method, path: &str, filename: Option<&str>) -> CommandResult {
    let mut request = RestRequest::new(method, encode_path(path)).accepting("application/json, */*");
    if let Some(filename) = filename {
        let body = if filename == "-" {
            use std::io::Read;
            let mut body = Vec::new();
            // An unreadable stdin is an empty body.
            let _ = std::io::stdin().lock().read_to_end(&mut body);
            body
        } else {
            files::read_file(filename)?
        };
        request = request.with_body("application/json", body);
    }
    let client = session.client()?;
    block_on(async {
        let mut body = client.open_stream_async(request).await?;
        while let Some(bytes) = body.next_bytes().await? {
            write_out_bytes(&bytes);
        }
        Ok(())
    })
}
