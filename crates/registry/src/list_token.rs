//! Continue tokens, in upstream's form: the revision that the list was begun at, and where the next page begins.

use base64::{
    Engine, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use serde::{Deserialize, Serialize};
use store::Revision;

const VERSION: &str = "meta.k8s.io/v1";
const INVALID: &str = "invalid continue token: continue key is not valid";

/// As Go reads it: what the last character says too much does not matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const LENIENT: GeneralPurposeConfig = general_purpose::NO_PAD.with_decode_allow_trailing_bits(true);

/// Where a list goes on.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// The state that the first page showed; `None`: what is there by then.
    pub revision: Option<Revision>,
    /// The key, after the prefix of the list, that the page before ended with.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
struct Form {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// The text of a token.
pub fn write(token: &Token) -> String {
    let rv = token.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
    let form = Form { v: VERSION.into(), rv, start: format!("/{}\0", token.after) };
    // A struct of texts and a number can always be written.
    BASE64.encode(serde_json::to_vec(&form).unwrap_or_default())
}

/// Reads a token, or says what is wrong with it.
pub fn read(text: &str) -> Result<Token, String> {
    let bytes = BASE64.decode(text).map_err(|error| format!("{INVALID}: {}", not_base64(&error)))?;
    let form: Form =
        serde_json::from_slice(&bytes).map_err(|error| format!("{INVALID}: {}", not_json(&bytes, &error)))?;
    if form.v != VERSION {
        return Err(format!("{INVALID}: server does not recognize this encoded version {}", form.v));
    }
    if form.rv == 0 {
        return Err(format!("{INVALID}: incorrect encoded start resourceVersion (version {VERSION})"));
    }
    if form.start.is_empty() {
        return Err(format!("{INVALID}: encoded start key empty (version {VERSION})"));
    }
    let key = form.start.strip_prefix('/').unwrap_or(&form.start);
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("{INVALID}: {}", form.start));
    }
    // The key after which the page begins is followed by the smallest character, so that it is not shown again.
    let after = key.strip_suffix('\0').unwrap_or(key).to_owned();
    Ok(Token { revision: u64::try_from(form.rv).ok(), after })
}

fn not_base64(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => *length,
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

/// What is wrong with JSON, in the words of Go where it is not JSON at all.
fn not_json(bytes: &[u8], error: &serde_json::Error) -> String {
    api::json::parse(bytes).err().map_or_else(|| error.to_string(), |fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_upstream() {
        let token = Token { revision: Some(207), after: "w-a".into() };
        assert_eq!(write(&token), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjA3LCJzdGFydCI6Ii93LWFcdTAwMDAifQ");
        assert_eq!(read(&write(&token)), Ok(token));
        let newest = Token { revision: None, after: "ns/w-a".into() };
        assert_eq!(read(&write(&newest)), Ok(newest));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let form = |v: &str, rv: i64, start: &str| {
            let form = Form { v: v.into(), rv, start: start.into() };
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
            assert_eq!(read(&text), Err(format!("{INVALID}{why}")));
        }
    }
}
