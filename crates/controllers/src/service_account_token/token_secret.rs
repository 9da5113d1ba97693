//! The contents of a token Secret: `token`, `ca.crt`, `namespace`, and the annotations about its service account.

use authn::{KeyError, TokenIssuer};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::ResourceExt;
use serde_json::json;

use super::Identity;

/// Issuer of tokens in Secrets.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Type of token Secrets.
pub(super) const TOKEN_SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const NAME_ANNOTATION: &str = "kubernetes.io/service-account.name";
const UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";

/// Returns the service account that a token Secret names.
pub(super) fn account_of(secret: &Secret) -> Option<Identity> {
    let annotation = |name: &str| secret.annotations().get(name).cloned().unwrap_or_default();
    let name = annotation(NAME_ANNOTATION);
    (secret.type_.as_deref() == Some(TOKEN_SECRET_TYPE) && !name.is_empty()).then(|| Identity {
        namespace: secret.metadata.namespace.clone().unwrap_or_default(),
        name,
        uid: annotation(UID_ANNOTATION),
    })
}

/// Fills token Secrets.
pub(super) struct TokenSecrets {
    pub(super) issuer: TokenIssuer,
    /// The cluster CA (PEM); empty if it is unknown.
    pub(super) root_ca: String,
}

impl TokenSecrets {
    /// Whether the Secret has a token, its namespace and the current CA.
    pub(super) fn is_complete(&self, secret: &Secret) -> bool {
        !self.needs_ca(secret) && has_data(secret, "namespace") && has_data(secret, "token")
    }

    fn needs_ca(&self, secret: &Secret) -> bool {
        let present = secret.data.as_ref().and_then(|data| data.get("ca.crt"));
        !self.root_ca.is_empty() && present.is_none_or(|present| present.0 != self.root_ca.as_bytes())
    }

    /// Adds what is missing.
    pub(super) fn complete_secret(&self, account: &ServiceAccount, secret: &mut Secret) -> Result<(), KeyError> {
        let mut missing = Vec::new();
        if self.needs_ca(secret) {
            missing.push(("ca.crt", self.root_ca.clone()));
        }
        if !has_data(secret, "namespace") {
            missing.push(("namespace", secret.namespace().unwrap_or_default()));
        }
        if !has_data(secret, "token") {
            missing.push(("token", self.sign_token(account, secret)?));
        }
        let data = secret.data.get_or_insert_default();
        data.extend(missing.into_iter().map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes()))));
        let annotations = secret.annotations_mut();
        annotations.insert(NAME_ANNOTATION.into(), account.name_any());
        annotations.insert(UID_ANNOTATION.into(), account.uid().unwrap_or_default());
        Ok(())
    }

    fn sign_token(&self, account: &ServiceAccount, secret: &Secret) -> Result<String, KeyError> {
        let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
        let claims = json!({
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret.name_any(),
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": account.uid(),
        });
        self.issuer.sign_claims(claims).unwrap_or(Err(KeyError::Unsupported))
    }
}

fn has_data(secret: &Secret, name: &str) -> bool {
    secret.data.as_ref().and_then(|data| data.get(name)).is_some_and(|value| !value.0.is_empty())
}

#[cfg(test)]
mod tests {
    use authn::tokens::Jwt;

    use super::*;

    fn secrets() -> TokenSecrets {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        TokenSecrets { issuer: TokenIssuer::new(LEGACY_ISSUER, &key).unwrap(), root_ca: "CA".into() }
    }

    fn secret() -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u",
            "annotations": {NAME_ANNOTATION: "robot"}}, "type": TOKEN_SECRET_TYPE}))
        .unwrap()
    }

    #[test]
    fn empty_secret_gets_token_namespace_ca_and_annotations() {
        let (tokens, mut secret) = (secrets(), secret());
        let account =
            serde_json::from_value(json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "sa-1"}})).unwrap();
        assert!(!tokens.is_complete(&secret));
        tokens.complete_secret(&account, &mut secret).unwrap();
        assert!(tokens.is_complete(&secret));
        assert_eq!(account_of(&secret).unwrap().uid, "sa-1");
        let data = secret.data.clone().unwrap();
        assert_eq!((data["ca.crt"].0.as_slice(), data["namespace"].0.as_slice()), (&b"CA"[..], &b"ns"[..]));
        let token = String::from_utf8(data["token"].0.clone()).unwrap();
        let jwt = Jwt::parse(&token).unwrap();
        assert!(jwt.verify_signature(tokens.issuer.keys("")));
        assert_eq!(jwt.string_claim("iss"), "kubernetes/serviceaccount");
        assert_eq!(jwt.string_claim("sub"), "system:serviceaccount:ns:robot");
        assert_eq!(jwt.string_claim("kubernetes.io/serviceaccount/secret.name"), "s");
        assert_eq!(jwt.string_claim("kubernetes.io/serviceaccount/service-account.uid"), "sa-1");
    }

    #[test]
    fn token_is_kept_when_only_the_ca_changes() {
        let (mut tokens, mut secret) = (secrets(), secret());
        let account =
            serde_json::from_value(json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "sa-1"}})).unwrap();
        tokens.complete_secret(&account, &mut secret).unwrap();
        let token = secret.data.clone().unwrap()["token"].clone();
        tokens.root_ca = "CA2".into();
        assert!(!tokens.is_complete(&secret));
        tokens.complete_secret(&account, &mut secret).unwrap();
        let data = secret.data.unwrap();
        assert_eq!((&data["token"], data["ca.crt"].0.as_slice()), (&token, &b"CA2"[..]));
    }

    #[test]
    fn secrets_of_other_types_and_without_annotation_are_ignored() {
        let mut other = secret();
        other.type_ = Some("Opaque".into());
        assert_eq!(account_of(&other), None);
        let mut unnamed = secret();
        unnamed.metadata.annotations = None;
        assert_eq!(account_of(&unnamed), None);
    }
}
