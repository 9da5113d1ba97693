//! Continue tokens in upstream's encoding: the revision of the first page and the start of the next one.

use base64::{
    Engine, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use serde::{Deserialize, Serialize};
use store::Revision;

const VERSION: &str = "meta.k8s.io/v1";

/// Lenient like Go: ignores trailing bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const LENIENT: GeneralPurposeConfig = general_purpose::NO_PAD.with_decode_allow_trailing_bits(true);

/// An invalid token, with upstream's text.
#[derive(Debug, thiserror::Error)]
#[error("invalid continue token: continue key is not valid: {0}")]
pub struct ContinueTokenError(String);

/// A decoded continue token.
#[derive(Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the first page; `None`: the current one.
    pub revision: Option<Revision>,
    /// The last key of the previous page, relative to the prefix of the list.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
struct EncodedToken {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// Encodes a token.
pub fn encode_continue_token(token: &ContinueToken) -> String {
    let rv = token.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
    let form = EncodedToken { v: VERSION.into(), rv, start: format!("/{}\0", token.after) };
    // Serialization of strings and a number cannot fail.
    BASE64.encode(serde_json::to_vec(&form).unwrap_or_default())
}

/// Decodes a token.
pub fn decode_continue_token(text: &str) -> Result<ContinueToken, ContinueTokenError> {
    let bytes = BASE64.decode(text).map_err(|error| ContinueTokenError(base64_error_text(&error)))?;
    let form: EncodedToken =
        serde_json::from_slice(&bytes).map_err(|error| ContinueTokenError(json_error_text(&bytes, &error)))?;
    if form.v != VERSION {
        return Err(ContinueTokenError(format!("server does not recognize this encoded version {}", form.v)));
    }
    if form.rv == 0 {
        return Err(ContinueTokenError(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    if form.start.is_empty() {
        return Err(ContinueTokenError(format!("encoded start key empty (version {VERSION})")));
    }
    let key = form.start.strip_prefix('/').unwrap_or(&form.start);
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(ContinueTokenError(form.start));
    }
    // Upstream appends NUL to the last key so that the range starts after it.
    let after = key.strip_suffix('\0').unwrap_or(key).to_owned();
    Ok(ContinueToken { revision: u64::try_from(form.rv).ok(), after })
}

fn base64_error_text(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => *length,
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

/// The error text of malformed JSON, in Go's words for syntax errors.
fn json_error_text(bytes: &[u8], error: &serde_json::Error) -> String {
    api::json::parse(bytes).err().map_or_else(|| error.to_string(), |fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_upstream_encoding() {
        let token = ContinueToken { revision: Some(207), after: "w-a".into() };
        assert_eq!(
            encode_continue_token(&token),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjA3LCJzdGFydCI6Ii93LWFcdTAwMDAifQ"
        );
        assert_eq!(decode_continue_token(&encode_continue_token(&token)).unwrap(), token);
        let newest = ContinueToken { revision: None, after: "ns/w-a".into() };
        assert_eq!(decode_continue_token(&encode_continue_token(&newest)).unwrap(), newest);
    }

    #[test]
    fn malformed_token_is_rejected() {
        let form = |v: &str, rv: i64, start: &str| {
            let form = EncodedToken { v: v.into(), rv, start: start.into() };
            BASE64.encode(serde_json::to_vec(&form).unwrap())
        };
        for (text, why) in [
            ("abc".to_owned(), ": invalid character 'i' looking for beginning of value"),
            ("zzz".to_owned(), ": invalid character 'Ï' looking for beginning of value"),
            ("a=".to_owned(), ": illegal base64 data at input byte 1"),
            (form("v2", 1, "a"), ": server does not recognize this encoded version v2"),
            (form(VERSION, 0, "a"), ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
            (form(VERSION, 1, ""), ": encoded start key empty (version meta.k8s.io/v1)"),
            (form(VERSION, 1, "/../secrets/a"), ": /../secrets/a"),
        ] {
            let error = decode_continue_token(&text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid continue token: continue key is not valid{why}"));
        }
    }
}
