//! `--encryption-provider-config`: which resources are encrypted, with which keys.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::cipher::{CipherKind, KeyProvider};
use crate::StoreError;

/// Built-in groups whose names have no dot.
const PLAIN_GROUPS: [&str; 5] = ["apps", "autoscaling", "batch", "extensions", "policy"];

/// The validated configuration. The first entry that names a resource is the one for it.
#[derive(Clone, Default)]
pub struct EncryptionConfig {
    rules: Vec<ResourceRule>,
}

#[derive(Clone)]
struct ResourceRule {
    /// `resource`, `resource.group`, `*.group`, `*.` (the core group) or `*.*`.
    resources: Vec<String>,
    providers: Vec<KeyProvider>,
}

impl EncryptionConfig {
    /// Reads an `EncryptionConfiguration` of `apiserver.config.k8s.io/v1` in YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let refuse = |reason: String| StoreError::Unusable(format!("--encryption-provider-config: {reason}"));
        let parsed = formats::yaml::parse(text.as_bytes()).map_err(|error| refuse(error.to_string()))?;
        if let Some(duplicates) = parsed.duplicate_key_error() {
            return Err(refuse(duplicates));
        }
        let raw: RawConfig = serde_json::from_value(parsed.value).map_err(|error| refuse(error.to_string()))?;
        if (raw.kind.as_str(), raw.api_version.as_str()) != ("EncryptionConfiguration", "apiserver.config.k8s.io/v1") {
            return Err(refuse(format!(
                "is {} of {}, not EncryptionConfiguration of apiserver.config.k8s.io/v1",
                raw.kind, raw.api_version
            )));
        }
        let rules = raw
            .resources
            .into_iter()
            .enumerate()
            .map(|(index, rule)| rule.validate().map_err(|reason| refuse(format!("resources[{index}]: {reason}"))));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// The providers for the resource of a key; `None`: it is not to be encrypted.
    pub(super) fn providers_for_key(&self, key: &str) -> Option<&[KeyProvider]> {
        let (resource, group) = resource_of_key(key)?;
        let names = |name: &String| match name.split_once('.') {
            None => group.is_empty() && name == resource,
            Some(("*", "*")) => true,
            Some((name, of)) => of == group && (name == "*" || name == resource),
        };
        self.rules.iter().find(|rule| rule.resources.iter().any(names)).map(|rule| &*rule.providers)
    }
}

/// Resource and group of a key such as `/registry/apps/deployments/default/nginx`.
fn resource_of_key(key: &str) -> Option<(&str, &str)> {
    let mut parts = key.strip_prefix("/registry/")?.split('/');
    let first = parts.next()?;
    if first.contains('.') || PLAIN_GROUPS.contains(&first) { Some((parts.next()?, first)) } else { Some((first, "")) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    kind: String,
    api_version: String,
    resources: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    resources: Vec<String>,
    providers: Vec<RawProvider>,
}

/// Exactly one is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProvider {
    aescbc: Option<RawKeys>,
    aesgcm: Option<RawKeys>,
    secretbox: Option<RawKeys>,
    identity: Option<serde_json::Map<String, serde_json::Value>>,
    kms: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKeys {
    keys: Vec<RawKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKey {
    name: String,
    secret: String,
}

/// An invalid entry of `resources`.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("needs resources and providers")]
    Empty,
    #[error("{0:?} is no resource; use \"*.*\" for all, \"*.\" for the core group")]
    Resource(String),
    #[error("kms is not supported; use aescbc, aesgcm, secretbox or identity")]
    Kms,
    #[error("a provider is exactly one of aescbc, aesgcm, secretbox and identity")]
    Provider,
    #[error("a provider needs keys")]
    NoKeys,
    #[error("the key name {0:?} is empty or has a colon")]
    KeyName(String),
    #[error("the secret of key {0:?} is not base64")]
    Base64(String),
    #[error("the secret of key {0:?} has {1} bytes and must have one of {2:?}")]
    KeyLength(String, usize, &'static [usize]),
}

impl RawRule {
    fn validate(self) -> Result<ResourceRule, RuleError> {
        if self.resources.is_empty() || self.providers.is_empty() {
            return Err(RuleError::Empty);
        }
        if let Some(name) = self.resources.iter().find(|name| name.is_empty() || *name == "*") {
            return Err(RuleError::Resource(name.clone()));
        }
        let providers = self.providers.into_iter().map(RawProvider::validate).collect::<Result<Vec<_>, _>>()?;
        Ok(ResourceRule { resources: self.resources, providers: providers.into_iter().flatten().collect() })
    }
}

impl RawProvider {
    fn validate(self) -> Result<Vec<KeyProvider>, RuleError> {
        if self.kms.is_some() {
            return Err(RuleError::Kms);
        }
        let keyed = [
            (CipherKind::AesCbc, self.aescbc),
            (CipherKind::AesGcm, self.aesgcm),
            (CipherKind::SecretBox, self.secretbox),
        ];
        let mut named: Vec<_> = keyed.into_iter().filter_map(|(cipher, keys)| Some((cipher, keys?.keys))).collect();
        if self.identity.is_some() {
            named.push((CipherKind::Identity, Vec::new()));
        }
        let Some((cipher, keys)) = named.pop().filter(|_| named.is_empty()) else {
            return Err(RuleError::Provider);
        };
        if cipher == CipherKind::Identity {
            return Ok(vec![KeyProvider::new(cipher, "", Vec::new())]);
        }
        if keys.is_empty() {
            return Err(RuleError::NoKeys);
        }
        keys.into_iter().map(|key| key.validate(cipher)).collect()
    }
}

impl RawKey {
    fn validate(self, cipher: CipherKind) -> Result<KeyProvider, RuleError> {
        if self.name.is_empty() || self.name.contains(':') {
            return Err(RuleError::KeyName(self.name));
        }
        let key = BASE64_STANDARD.decode(&self.secret).map_err(|_| RuleError::Base64(self.name.clone()))?;
        if !cipher.key_lengths().contains(&key.len()) {
            return Err(RuleError::KeyLength(self.name, key.len(), cipher.key_lengths()));
        }
        Ok(KeyProvider::new(cipher, &self.name, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(resources: &str, provider: &str) -> Result<EncryptionConfig, String> {
        let text = format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
             - resources: {resources}\n  providers:\n  - {provider}\n"
        );
        EncryptionConfig::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn resources_match_by_name_group_and_wildcard() {
        for (resources, key, chosen) in [
            ("[secrets]", "/registry/secrets/a/b", true),
            ("[secrets]", "/registry/configmaps/a/b", false),
            ("[deployments.apps]", "/registry/apps/deployments/a/b", true),
            ("[deployments]", "/registry/apps/deployments/a/b", false),
            ("['*.apps']", "/registry/apps/replicasets/a/b", true),
            ("['*.']", "/registry/secrets/a/b", true),
            ("['*.']", "/registry/example.com/things/a", false),
            ("['*.*']", "/registry/example.com/things/a", true),
        ] {
            assert_eq!(
                config(resources, "identity: {}").unwrap().providers_for_key(key).is_some(),
                chosen,
                "{resources} {key}"
            );
        }
    }

    #[test]
    fn invalid_configuration_is_named() {
        let short = "aesgcm: {keys: [{name: k, secret: c2hvcnQ=}]}";
        for (resources, provider, expected) in [
            ("[secrets]", short, "resources[0]: the secret of key \"k\" has 5 bytes"),
            ("[secrets]", "aescbc: {keys: [{name: 'a:b', secret: ''}]}", "colon"),
            ("[secrets]", "secretbox: {keys: []}", "needs keys"),
            ("[secrets]", "kms: {name: x}", "kms is not supported"),
            ("[secrets]", "rot13: {}", "rot13"),
            ("['*']", "identity: {}", "*.*"),
            ("[]", "identity: {}", "needs resources"),
        ] {
            let refused = config(resources, provider).err().expect(provider);
            assert!(refused.contains(expected), "{refused}");
        }
        assert!(EncryptionConfig::parse("kind: Pod\napiVersion: v1\nresources: []").is_err());
    }
}
