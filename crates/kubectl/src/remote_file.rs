//! Manifests behind URLs.

use crate::{
    errors::{CommandError, CommandResult},
    kubeconfig::ClientSettings,
    rest::{LogLevel, RestClient, RestRequest},
};

/// Downloads a manifest; answers of 5xx are asked for three times.
pub fn download(url: &str) -> CommandResult<Vec<u8>> {
    let scheme_end = url.find("://").map_or(0, |at| at + 3);
    let path_start = url[scheme_end..].find('/').map_or(url.len(), |at| at + scheme_end);
    let (host, path) = url.split_at(path_start);
    let settings = ClientSettings { host: host.to_owned(), ..Default::default() };
    let client = RestClient::new(settings, "", LogLevel::default())?;
    let mut last = CommandError::new(format!("unable to read URL {}", api::json::go_quote(url)));
    for _ in 0..3 {
        let request = RestRequest::get(if path.is_empty() { "/" } else { path }).accepting("*/*");
        let response = client.send_any(&request)?;
        let code = response.status.as_u16();
        if response.status.is_success() {
            return Ok(response.body.to_vec());
        }
        let reason = response.status.canonical_reason().unwrap_or_default();
        let quoted = api::json::go_quote(url);
        last = CommandError::new(format!(
            "unable to read URL {quoted}, server reported {code} {reason}, status code={code}"
        ));
        if code < 500 {
            break;
        }
    }
    Err(last)
}
