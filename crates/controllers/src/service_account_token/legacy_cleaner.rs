//! legacy-serviceaccount-token-cleaner-controller: marks generated token Secrets that were not used for a long time as
//! invalid, and deletes them later.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use client::{ApiErrorExt, SharedInformer};
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

use super::token_secret::{TOKEN_SECRET_TYPE, account_of};
use crate::{
    ControllerContext,
    periodic::{PeriodicTask, run_periodically},
};

const TRACKING_CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";
const LAST_USED_LABEL: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";
/// Fields of a volume that name a Secret.
const VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

struct LegacyTokenCleaner {
    client: Client,
    accounts: SharedInformer<ServiceAccount>,
    secrets: SharedInformer<Secret>,
    clean_up_period: Duration,
}

/// Fate of a token Secret.
#[derive(Debug, PartialEq, Eq)]
enum TokenVerdict {
    Keep,
    MarkInvalid,
    Delete,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let cleaner = LegacyTokenCleaner {
        client: context.client.clone(),
        accounts: context.informers.informer_for(),
        secrets: context.informers.informer_for(),
        clean_up_period: context.options.legacy_service_account_token_clean_up_period,
    };
    run_periodically(&context, cleaner).await;
}

impl PeriodicTask for LegacyTokenCleaner {
    const PERIOD: Duration = Duration::from_secs(24 * 3600);

    async fn wait_until_ready(&self) {
        self.accounts.wait_for_cache_sync().await;
        self.secrets.wait_for_cache_sync().await;
    }

    async fn run_once(&self) {
        if let Err(error) = self.clean_tokens(Timestamp::now()).await {
            tracing::warn!(%error, "legacy service account token cleaner: check failed, repeated in a day");
        }
    }
}

impl LegacyTokenCleaner {
    async fn clean_tokens(&self, now: Timestamp) -> Result<(), kube::Error> {
        let Some(tracked_since) = self.tracked_since().await? else { return Ok(()) };
        let unused_since = now.checked_sub(self.clean_up_period).ok().filter(|since| *since >= tracked_since);
        let Some(unused_since) = unused_since else { return Ok(()) };
        let mut mounted: HashMap<String, HashSet<String>> = HashMap::new();
        for secret in self.secrets.list() {
            let verdict = match is_unused_token(&secret, unused_since) && self.is_generated(&secret) {
                true => token_verdict(&secret, unused_since),
                false => TokenVerdict::Keep,
            };
            if verdict == TokenVerdict::Keep {
                continue;
            }
            let namespace = secret.namespace().unwrap_or_default();
            if !mounted.contains_key(&namespace) {
                mounted.insert(namespace.clone(), self.mounted_secrets(&namespace).await?);
            }
            let names = &mounted[&namespace];
            if !names.contains(&secret.name_any())
                && let Err(error) = self.apply_verdict(&secret, &verdict, now).await
            {
                tracing::warn!(namespace, name = secret.name_any(), %error, "legacy service account token cleaner: token not cleaned");
            }
        }
        Ok(())
    }

    /// Returns the latest time at which the use of tokens began to be tracked.
    async fn tracked_since(&self) -> Result<Option<Timestamp>, kube::Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let Some(tracking) = api.get_opt(TRACKING_CONFIG_MAP).await? else { return Ok(None) };
        let since = tracking.data.as_ref().and_then(|data| data.get("since")?.parse::<Date>().ok());
        let next_day = since.and_then(|date| date.checked_add(1.day()).ok());
        Ok(next_day.and_then(|date| date.to_zoned(TimeZone::UTC).ok()).map(|time| time.timestamp()))
    }

    /// Whether the Secret is referenced by its service account, as generated tokens are.
    fn is_generated(&self, secret: &Secret) -> bool {
        let account = account_of(secret);
        let account = account.and_then(|named| {
            let account = self.accounts.get(&named.namespace, &named.name)?;
            named.matches_uid(account.metadata.uid.as_deref()).then_some(account)
        });
        let name = secret.name_any();
        account.is_some_and(|account| {
            account.secrets.iter().flatten().any(|reference| reference.name.as_deref() == Some(&name))
        })
    }

    async fn mounted_secrets(&self, namespace: &str) -> Result<HashSet<String>, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.list(&ListParams::default()).await?.items.iter().flat_map(pod_secret_names).collect())
    }

    async fn apply_verdict(&self, secret: &Secret, verdict: &TokenVerdict, now: Timestamp) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace().unwrap_or_default());
        if *verdict == TokenVerdict::MarkInvalid {
            let labels = json!({INVALID_SINCE_LABEL: date_text(now)});
            let patch = json!({"metadata": {"uid": secret.uid(), "labels": labels}});
            return api.patch(&secret.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop);
        }
        let this_version = Preconditions { resource_version: secret.resource_version(), ..Default::default() };
        match api.delete(&secret.name_any(), &DeleteParams::default().preconditions(this_version)).await {
            Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

fn date_text(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).date().to_string()
}

/// Whether the Secret is a token that was created and last used before `unused_since`.
fn is_unused_token(secret: &Secret, unused_since: Timestamp) -> bool {
    let created = secret.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let last_used = secret.labels().get(LAST_USED_LABEL);
    secret.type_.as_deref() == Some(TOKEN_SECRET_TYPE)
        && created.is_some_and(|created| created < unused_since)
        && secret.metadata.deletion_timestamp.is_none()
        && last_used.is_none_or(|date| date.parse::<Date>().is_ok() && *date < date_text(unused_since))
}

fn token_verdict(secret: &Secret, unused_since: Timestamp) -> TokenVerdict {
    let invalid_since = secret.labels().get(INVALID_SINCE_LABEL).filter(|date| date.parse::<Date>().is_ok());
    match invalid_since {
        None => TokenVerdict::MarkInvalid,
        Some(date) if *date >= date_text(unused_since) => TokenVerdict::Keep,
        Some(_) => TokenVerdict::Delete,
    }
}

/// Returns the names of all Secrets that the pod uses.
fn pod_secret_names(pod: &Pod) -> Vec<String> {
    let spec = json!(pod.spec);
    let mut names = Vec::new();
    let mut add = |value: Option<&Value>| names.extend(value.and_then(Value::as_str).map(str::to_owned));
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    list(&spec, "imagePullSecrets").iter().for_each(|reference| add(reference.get("name")));
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(&spec, kind) {
            list(&container, "env").iter().for_each(|env| add(env.pointer("/valueFrom/secretKeyRef/name")));
            list(&container, "envFrom").iter().for_each(|source| add(source.pointer("/secretRef/name")));
        }
    }
    for volume in list(&spec, "volumes") {
        VOLUME_SECRETS.iter().for_each(|field| add(volume.pointer(field)));
        list(&volume["projected"], "sources").iter().for_each(|source| add(source.pointer("/secret/name")));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(created: &str, labels: Value) -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "ns", "creationTimestamp": created,
            "labels": labels}, "type": TOKEN_SECRET_TYPE}))
        .unwrap()
    }

    #[test]
    fn unused_tokens_are_marked_and_later_deleted() {
        let since: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        let (old, new) = ("2025-01-01T00:00:00Z", "2026-01-11T00:00:00Z");
        assert!(is_unused_token(&token(old, json!({})), since) && !is_unused_token(&token(new, json!({})), since));
        assert!(is_unused_token(&token(old, json!({LAST_USED_LABEL: "2026-01-09"})), since));
        assert!(!is_unused_token(&token(old, json!({LAST_USED_LABEL: "2026-01-10"})), since));
        assert!(!is_unused_token(&token(old, json!({LAST_USED_LABEL: "yesterday"})), since));
        assert_eq!(token_verdict(&token(old, json!({})), since), TokenVerdict::MarkInvalid);
        assert_eq!(token_verdict(&token(old, json!({INVALID_SINCE_LABEL: "?"})), since), TokenVerdict::MarkInvalid);
        assert_eq!(token_verdict(&token(old, json!({INVALID_SINCE_LABEL: "2026-01-10"})), since), TokenVerdict::Keep);
        assert_eq!(token_verdict(&token(old, json!({INVALID_SINCE_LABEL: "2026-01-09"})), since), TokenVerdict::Delete);
    }

    #[test]
    fn all_references_of_a_pod_to_secrets_count() {
        let pod = serde_json::from_value(json!({"spec": {"imagePullSecrets": [{"name": "a"}],
            "containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "c"}}]}],
            "volumes": [{"name": "v", "secret": {"secretName": "d"}},
                {"name": "w", "projected": {"sources": [{"secret": {"name": "e"}}]}},
                {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "f"}}}]}}))
        .unwrap();
        let mut names = pod_secret_names(&pod);
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
    }
}
