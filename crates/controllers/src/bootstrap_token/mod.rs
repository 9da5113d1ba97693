//! Controllers of bootstrap tokens: Secrets of type `bootstrap.kubernetes.io/token` in `kube-system`.

pub(crate) mod cleaner;
pub(crate) mod signer;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

/// Namespace of the tokens.
const TOKEN_NAMESPACE: &str = "kube-system";
/// Type of the Secrets.
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Whether the Secret is a bootstrap token.
fn is_bootstrap_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TOKEN_TYPE) && secret.metadata.namespace.as_deref() == Some(TOKEN_NAMESPACE)
}

/// Returns a value of the Secret as text; empty if it is absent.
fn secret_text(secret: &Secret, name: &str) -> String {
    let value = secret.data.as_ref().and_then(|data| data.get(name));
    value.map(|value| String::from_utf8_lossy(&value.0).into_owned()).unwrap_or_default()
}

/// Expiration of a token.
#[derive(Debug, PartialEq, Eq)]
enum TokenExpiration {
    Never,
    /// Includes an unreadable expiration.
    Expired,
    At(Timestamp),
}

fn token_expiration(secret: &Secret, now: Timestamp) -> TokenExpiration {
    match secret_text(secret, "expiration").as_str() {
        "" => TokenExpiration::Never,
        text => match text.parse::<Timestamp>() {
            Ok(time) if time > now => TokenExpiration::At(time),
            _ => TokenExpiration::Expired,
        },
    }
}
