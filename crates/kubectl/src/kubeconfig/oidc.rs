//! Tokens of the `oidc` authentication provider of old kubeconfigs.

use api::Value;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{ClientSettings, text_of};
use crate::errors::{CommandError, CommandResult};

/// Uses the stored ID token of an `oidc` provider; other providers and expired tokens are refused by name.
pub fn load_oidc_token(settings: &mut ClientSettings) -> CommandResult {
    let Some(provider) = &settings.user.provider else { return Ok(()) };
    let name = text_of(provider, "name");
    if name != "oidc" {
        let hint = match name {
            "gcp" | "azure" => format!("The {name} auth plugin has been removed."),
            _ => format!("no Auth Provider found for name {}", api::json::go_quote(name)),
        };
        return Err(CommandError::new(hint));
    }
    let config = provider.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
    if text_of(&config, "idp-issuer-url").is_empty() {
        return Err(CommandError::new("Must provide idp-issuer-url"));
    }
    if text_of(&config, "client-id").is_empty() {
        return Err(CommandError::new("Must provide client-id"));
    }
    let token = text_of(&config, "id-token");
    if token.is_empty() || is_expired(token) {
        let message = "No valid id-token, and cannot refresh without refresh-token";
        return Err(CommandError::new(message));
    }
    settings.user.token = token.to_owned();
    Ok(())
}

/// Whether the expiry time of a JWT has passed; a token that cannot be read counts as expired.
fn is_expired(token: &str) -> bool {
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Value> = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let expiry = claims.and_then(|claims| claims.get("exp").and_then(Value::as_i64));
    expiry.is_none_or(|expiry| expiry <= jiff::Timestamp::now().as_second())
}
