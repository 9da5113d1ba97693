//! ServiceAccount: assigns an existing service account to every pod, and adds its image pull secrets and, unless
//! disabled, a projected volume with token, CA bundle and namespace.

use std::time::Duration;

use api::{Value, meta, status::Status};
use apiserver_core::names::generate_name;
use async_trait::async_trait;
use serde_json::json;

use super::service_account_secrets::{check_ephemeral_secrets, check_pod_secrets};
use crate::{AdmissionAttributes, DenialReason, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "ServiceAccount",
    enabled_by_default: true,
    rules: &[ResourceRule {
        resource: ("", "pods"),
        subresources: &["", "ephemeralcontainers"],
        operations: Operation::WRITES,
    }],
    construct: |_| Ok(Box::new(ServiceAccount)),
};

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Expiration seconds of auto-mounted tokens; upstream's value, by which the issuer recognizes them.
const EXPIRATION: i64 = 60 * 60 + 7;
/// Number of attempts to read the default account, which its controller may be about to create.
const MAX_READ_ATTEMPTS: usize = 10;

struct ServiceAccount;

#[async_trait]
impl Plugin for ServiceAccount {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        if attributes.operation != Operation::Create || !attributes.subresource().is_empty() {
            return Ok(());
        }
        if pod::is_mirror_pod(pod) {
            return self.validate(attributes, pod).await;
        }
        if meta::string_at(pod, &["spec", "serviceAccountName"]).is_empty() {
            let spec = meta::field_mut(pod, "spec");
            spec.insert("serviceAccountName".into(), DEFAULT.into());
            spec.insert("serviceAccount".into(), DEFAULT.into());
        }
        let account = pod_service_account(attributes, pod).await?;
        if automounts_token(&account, pod) {
            mount_token(pod);
        }
        add_pull_secrets(&account, pod);
        self.validate(attributes, pod).await
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        match (attributes.operation, attributes.subresource()) {
            (Operation::Update, "ephemeralcontainers") => {
                let account = pod_service_account(attributes, pod).await?;
                check_ephemeral_secrets(&account, pod).map_err(|why| attributes.new_forbidden(pod, why))
            }
            (Operation::Create, "") if pod::is_mirror_pod(pod) => {
                check_mirror_pod(pod).map_err(|why| attributes.new_forbidden(pod, why))
            }
            (Operation::Create, "") => {
                let account = pod_service_account(attributes, pod).await?;
                check_pod_secrets(&account, pod).map_err(|why| attributes.new_forbidden(pod, why))
            }
            _ => Ok(()),
        }
    }
}

async fn pod_service_account(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<Value, Status> {
    let (namespace, name) = (attributes.namespace(), meta::string_at(pod, &["spec", "serviceAccountName"]));
    if name.is_empty() {
        let why = format!("no service account specified for pod {namespace}/{}", meta::name(pod));
        return Err(attributes.new_forbidden(pod, why));
    }
    for look in 0..if name == DEFAULT { MAX_READ_ATTEMPTS } else { 1 } {
        if look > 0 {
            tokio::time::sleep(Duration::from_millis(100 + fastrand::u64(..100))).await;
        }
        if let Some(account) = attributes.get_object(("", "v1", "serviceaccounts"), namespace, name).await? {
            return Ok(account);
        }
    }
    let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
    Err(attributes.new_forbidden(pod, why))
}

/// Whether the token is mounted: the pod's `automountServiceAccountToken` precedes the account's.
fn automounts_token(account: &Value, pod: &Value) -> bool {
    let flag = |object: &Value, path: &[&str]| meta::value_at(object, path).and_then(Value::as_bool);
    flag(pod, &["spec", "automountServiceAccountToken"])
        .or(flag(account, &["automountServiceAccountToken"]))
        .unwrap_or(true)
}

fn mount_token(pod: &mut Value) {
    let volumes = meta::list_at(pod, &["spec", "volumes"]).iter();
    let there = volumes.map(|volume| meta::string_at(volume, &["name"])).find(|name| name.starts_with(VOLUME));
    let there = there.map(str::to_owned);
    let name = there.clone().unwrap_or_else(|| generate_name(VOLUME));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in pod::containers_mut(pod, list) {
            let mounts = meta::object_mut(container).entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                needed = true;
            }
        }
    }
    if there.is_none() && needed {
        let volumes = meta::field_mut(pod, "spec").entry("volumes").or_insert_with(|| json!([]));
        volumes.as_array_mut().into_iter().for_each(|volumes| volumes.push(token_volume(&name)));
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": EXPIRATION, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}

fn add_pull_secrets(account: &Value, pod: &mut Value) {
    let secrets = meta::list_at(account, &["imagePullSecrets"]);
    if meta::list_at(pod, &["spec", "imagePullSecrets"]).is_empty() && !secrets.is_empty() {
        let names: Vec<Value> = secrets.iter().map(|secret| json!({"name": secret["name"]})).collect();
        meta::field_mut(pod, "spec").insert("imagePullSecrets".into(), names.into());
    }
}

/// Rejects mirror pods that reference service accounts, secrets or tokens.
fn check_mirror_pod(pod: &Value) -> Result<(), DenialReason> {
    if !meta::string_at(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".into());
    }
    if super::service_account_secrets::references_secrets(pod) {
        return Err("a mirror pod may not reference secrets".into());
    }
    let sources =
        meta::list_at(pod, &["spec", "volumes"]).iter().flat_map(|v| meta::list_at(v, &["projected", "sources"]));
    if sources.clone().any(|source| meta::value_at(source, &["serviceAccountToken"]).is_some()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".into());
    }
    Ok(())
}
