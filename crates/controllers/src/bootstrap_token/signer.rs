//! bootstrap-signer-controller: signs the kubeconfig in ConfigMap `cluster-info` of `kube-public` with every bootstrap
//! token that allows it.

use std::{collections::BTreeMap, sync::Arc};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use client::{ApiErrorExt, RequeueAction, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt, api::PostParams, runtime::watcher};
use ring::hmac;
use serde_json::json;

use super::{TokenExpiration, is_bootstrap_token, secret_text, token_expiration};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

const CONFIG_MAP_NAMESPACE: &str = "kube-public";
const CONFIG_MAP_NAME: &str = "cluster-info";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// Index of bootstrap tokens, under the value `""`.
const BOOTSTRAP_TOKENS: &str = "bootstrap-tokens";

struct BootstrapSignerController {
    client: Client,
    config_maps: SharedInformer<ConfigMap>,
    secrets: SharedInformer<Secret>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP_NAME}"));
    let config_maps = Api::namespaced(context.informers.client().clone(), CONFIG_MAP_NAMESPACE);
    let build = |_| BootstrapSignerController {
        config_maps: SharedInformer::start(config_maps, only_ours, context.shutdown.clone()),
        secrets: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for BootstrapSignerController {
    type Key = ();
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        let index = |secret: &Secret| is_bootstrap_token(secret).then(String::new).into_iter().collect();
        self.secrets.add_index(BOOTSTRAP_TOKENS, index);
        watches.add(&self.config_maps, |_, _, queue| queue.add(()));
        watches.add(&self.secrets, |_, event, queue| {
            if is_bootstrap_token(event.object()) {
                queue.add(());
            }
        });
    }

    async fn sync(&self, (): &()) -> Result<RequeueAction, kube::Error> {
        let Some(config_map) = self.config_maps.get(CONFIG_MAP_NAMESPACE, CONFIG_MAP_NAME) else {
            return Ok(RequeueAction::AwaitChange);
        };
        let tokens = signing_tokens(&self.secrets.by_index(BOOTSTRAP_TOKENS, ""), Timestamp::now());
        let data = config_map.data.clone().unwrap_or_default();
        let Some(signed) = signed_data(&data, &tokens).filter(|signed| *signed != data) else {
            return Ok(RequeueAction::AwaitChange);
        };
        let mut updated = Arc::unwrap_or_clone(config_map);
        updated.data = Some(signed);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), CONFIG_MAP_NAMESPACE);
        match api.replace(CONFIG_MAP_NAME, &PostParams::default(), &updated).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(RequeueAction::AwaitChange),
        }
    }
}

/// Returns the secrets of valid signing tokens by token ID.
fn signing_tokens(secrets: &[Arc<Secret>], now: Timestamp) -> BTreeMap<String, String> {
    let mut tokens = BTreeMap::new();
    for secret in secrets {
        let (id, value) = (secret_text(secret, "token-id"), secret_text(secret, "token-secret"));
        let is_token_id = id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let is_valid = is_token_id
            && secret.name_any() == format!("bootstrap-token-{id}")
            && !value.is_empty()
            && token_expiration(secret, now) != TokenExpiration::Expired
            && secret_text(secret, "usage-bootstrap-signing") == "true";
        if is_valid {
            tokens.entry(id).or_insert(value);
        }
    }
    tokens
}

/// Returns the data with exactly the signatures of these tokens; `None` without a kubeconfig.
fn signed_data(data: &BTreeMap<String, String>, tokens: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    let content = data.get("kubeconfig")?;
    let mut signed = data.clone();
    signed.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    let signatures =
        tokens.iter().map(|(id, secret)| (format!("{SIGNATURE_PREFIX}{id}"), sign_detached(content, id, secret)));
    signed.extend(signatures);
    Some(signed)
}

/// Signs content with HS256 and returns the JWS without its payload (RFC 7515, appendix F).
fn sign_detached(content: &str, token_id: &str, token_secret: &str) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": token_id}).to_string());
    let message = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token_secret.as_bytes());
    format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes())))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn token(name: &str, fields: &[(&str, &str)]) -> Arc<Secret> {
        let data =
            fields.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let mut secret = Secret { data: Some(data), ..Default::default() };
        secret.metadata.name = Some(name.into());
        Arc::new(secret)
    }

    /// The content, token and signature of upstream's test of `ComputeDetachedSignature`.
    #[test]
    fn signature_equals_upstreams() {
        assert_eq!(
            sign_detached(
                "Hello from the other side. I must have called a thousand times.",
                "joshua",
                "my voice is my passcode"
            ),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
    }

    #[test]
    fn signatures_follow_the_tokens() {
        let now = Timestamp::UNIX_EPOCH;
        let valid = [("token-id", "abcdef"), ("token-secret", "s"), ("usage-bootstrap-signing", "true")];
        let expired = [valid.as_slice(), &[("expiration", "1960-01-01T00:00:00Z")]].concat();
        assert_eq!(signing_tokens(&[token("bootstrap-token-abcdef", &valid)], now).len(), 1);
        assert!(signing_tokens(&[token("other", &valid)], now).is_empty());
        assert!(signing_tokens(&[token("bootstrap-token-abcdef", &valid[..2])], now).is_empty());
        assert!(signing_tokens(&[token("bootstrap-token-abcdef", &expired)], now).is_empty());
        let data: BTreeMap<String, String> =
            [("kubeconfig", "x"), ("jws-kubeconfig-gone00", "y")].map(|(key, value)| (key.into(), value.into())).into();
        let signed = signed_data(&data, &[("abcdef".to_owned(), "s".to_owned())].into()).unwrap();
        assert_eq!(signed.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig"]);
        assert_eq!(signed_data(&BTreeMap::new(), &BTreeMap::new()), None);
    }
}
