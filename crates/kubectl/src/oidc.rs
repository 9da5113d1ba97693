//! Tokens of the `oidc` authentication provider: the stored one while it is valid, then a new one for the refresh token.

use api::{Map, Value, json::go_quote};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};

use crate::{
    errors::{CommandError, CommandResult},
    files,
    kubeconfig::{ClientSettings, text_of},
    rest::{LogLevel, RestClient, RestRequest, encode_query},
};

/// Sets the token of an `oidc` provider; other providers are refused by name. Returns the provider's configuration if it
/// has new tokens, which are to be stored.
pub fn load_token(settings: &mut ClientSettings) -> CommandResult<Option<Map>> {
    let Some(provider) = &settings.user.provider else { return Ok(None) };
    let name = text_of(provider, "name");
    if name != "oidc" {
        let hint = match name {
            "gcp" | "azure" => format!("The {name} auth plugin has been removed."),
            _ => format!("no Auth Provider found for name {}", go_quote(name)),
        };
        return Err(CommandError::new(hint));
    }
    let mut config = provider.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["idp-issuer-url", "client-id"] {
        if text_of(&config, field).is_empty() {
            return Err(CommandError::new(format!("Must provide {field}")));
        }
    }
    let stored = text_of(&config, "id-token");
    if !stored.is_empty() && !is_expired(stored)? {
        settings.user.token = stored.to_owned();
        return Ok(None);
    }
    refresh(&mut config)?;
    settings.user.token = text_of(&config, "id-token").to_owned();
    Ok(Some(config))
}

/// Whether the expiry time of a JWT has passed.
fn is_expired(token: &str) -> CommandResult<bool> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, claims, _] = parts.as_slice() else { crate::bail!("ID Token is not a valid JWT") };
    let decoded = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('='));
    let decoded = decoded.map_err(|error| CommandError::new(error.to_string()))?;
    let claims: Value =
        serde_json::from_slice(&decoded).map_err(|error| CommandError::new(format!("parsing claims: {error}")))?;
    let expiry = claims.get("exp").and_then(Value::as_i64).unwrap_or_default();
    // Ten seconds for clocks that differ and for the request itself.
    Ok(expiry <= jiff::Timestamp::now().as_second() + 10)
}

/// Asks the provider for new tokens.
fn refresh(config: &mut Map) -> CommandResult {
    let refresh_token = text_of(config, "refresh-token").to_owned();
    if refresh_token.is_empty() {
        crate::bail!("No valid id-token, and cannot refresh without refresh-token");
    }
    let issuer = text_of(config, "idp-issuer-url").trim_end_matches('/').to_owned();
    let (client, path) = client_for(config, &format!("{issuer}/.well-known/openid-configuration"))?;
    let response = client.send_any(&RestRequest::get(path).accepting("*/*"))?;
    if response.status != http::StatusCode::OK {
        let mut body = String::from_utf8_lossy(&response.body).into_owned();
        if let Some((end, _)) = body.char_indices().nth(80) {
            body.truncate(end);
            body += "...";
        }
        let (code, reason) = (response.status.as_u16(), response.status.canonical_reason().unwrap_or_default());
        crate::bail!("oidc: failed to query metadata endpoint {code} {reason}: {}", go_quote(&body));
    }
    let metadata: Value = serde_json::from_slice(&response.body)
        .map_err(|error| CommandError::new(format!("oidc: failed to decode provider discovery object: {error}")))?;
    let Some(endpoint) = metadata.get("token_endpoint").and_then(Value::as_str).filter(|url| !url.is_empty()) else {
        crate::bail!("oidc: discovery object doesn't contain a token_endpoint");
    };
    let answer = request_tokens(config, endpoint, &refresh_token)
        .map_err(|error| error.with_prefix("failed to refresh token: "))?;
    let text = |field: &str| answer.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if text("id_token").is_empty() {
        crate::bail!(
            "token response did not contain an id_token, either the scope \"openid\" wasn't requested upon login, or the \
             provider doesn't support id_tokens as part of the refresh response"
        );
    }
    if !text("refresh_token").is_empty() {
        config.insert("refresh-token".into(), text("refresh_token").into());
    }
    config.insert("id-token".into(), text("id_token").into());
    Ok(())
}

fn request_tokens(config: &Map, endpoint: &str, refresh_token: &str) -> CommandResult<Value> {
    let (client, path) = client_for(config, endpoint)?;
    let (id, secret) = (text_of(config, "client-id"), text_of(config, "client-secret"));
    let form = |with_client: bool| {
        let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        if with_client {
            fields.extend([("client_id", id), ("client_secret", secret)]);
        }
        fields.retain(|(_, value)| !value.is_empty());
        let fields: Vec<(String, String)> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        encode_query(&fields)
    };
    // Providers want the client in a header or in the form; both are tried, as upstream does.
    let mut request =
        RestRequest::new(http::Method::POST, path.clone()).with_body("application/x-www-form-urlencoded", form(false));
    let pair =
        [id, secret].map(|part| encode_query(&[(String::new(), part.to_owned())]).trim_start_matches('=').to_owned());
    request.headers.push(("Authorization".into(), format!("Basic {}", STANDARD.encode(pair.join(":")))));
    let mut response = client.send_any(&request)?;
    if !response.status.is_success() {
        let request =
            RestRequest::new(http::Method::POST, path).with_body("application/x-www-form-urlencoded", form(true));
        response = client.send_any(&request)?;
    }
    if !response.status.is_success() {
        let (code, reason) = (response.status.as_u16(), response.status.canonical_reason().unwrap_or_default());
        let body = String::from_utf8_lossy(&response.body).into_owned();
        crate::bail!("oauth2: cannot fetch token: {code} {reason}\nResponse: {body}");
    }
    serde_json::from_slice(&response.body)
        .map_err(|error| CommandError::new(format!("oauth2: cannot parse json: {error}")))
}

/// A client of the provider and the path of a URL.
fn client_for(config: &Map, url: &str) -> CommandResult<(RestClient, String)> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| at + start);
    let (host, path) = url.split_at(end);
    let data = text_of(config, "idp-certificate-authority-data");
    let authority = match text_of(config, "idp-certificate-authority") {
        _ if !data.is_empty() => Some(STANDARD.decode(data).map_err(|error| CommandError::new(error.to_string()))?),
        "" => None,
        file => Some(files::read_file(file)?),
    };
    let settings = ClientSettings { host: host.to_owned(), authority, ..Default::default() };
    let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
    Ok((RestClient::new(settings, "", LogLevel::default())?, path))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};

    use serde_json::json;

    use super::*;

    fn token(expiry: i64) -> String {
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(json!({"exp": expiry}).to_string()))
    }

    fn settings(config: Value) -> ClientSettings {
        let mut settings = ClientSettings::default();
        settings.user.provider = json!({"name": "oidc", "config": config}).as_object().cloned();
        settings
    }

    /// Serves the discovery document and one token, and returns its address.
    fn start_provider(new_token: String) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let base = address.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(&stream);
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                        length = text.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let answer = if first.starts_with("GET") {
                    json!({"token_endpoint": format!("{base}/token")})
                } else {
                    let body = String::from_utf8(body).unwrap();
                    assert!(body.contains("refresh_token=old"), "{body}");
                    json!({"id_token": new_token, "refresh_token": "new"})
                };
                let text = answer.to_string();
                write!(&stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len())
                    .unwrap();
            }
        });
        address
    }

    #[test]
    fn valid_token_is_used_as_it_is() {
        let stored = token(i64::MAX / 2);
        let mut settings = settings(json!({"idp-issuer-url": "http://i", "client-id": "c", "id-token": stored}));
        assert!(load_token(&mut settings).unwrap().is_none());
        assert_eq!(settings.user.token, stored);
    }

    #[test]
    fn expired_token_is_refreshed() {
        let new_token = token(i64::MAX / 2);
        let issuer = start_provider(new_token.clone());
        let mut settings =
            settings(json!({"idp-issuer-url": issuer, "client-id": "c", "id-token": token(1), "refresh-token": "old"}));
        let config = load_token(&mut settings).unwrap().unwrap();
        assert_eq!((text_of(&config, "id-token"), text_of(&config, "refresh-token")), (new_token.as_str(), "new"));
        assert_eq!(settings.user.token, new_token);
    }

    #[test]
    fn incomplete_providers_are_rejected() {
        let error = |config| load_token(&mut settings(config)).unwrap_err().to_string();
        assert_eq!(error(json!({})), "Must provide idp-issuer-url");
        assert_eq!(error(json!({"idp-issuer-url": "x"})), "Must provide client-id");
        assert_eq!(
            error(json!({"idp-issuer-url": "x", "client-id": "c", "id-token": token(1)})),
            "No valid id-token, and cannot refresh without refresh-token"
        );
    }
}
