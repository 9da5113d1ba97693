//! Enforces mountable secrets: a pod may use only those that its service account lists, if the account says so.

use std::collections::BTreeSet;

use api::{Value, meta};
use authz::POD_SECRETS;

use crate::{DenialReason, pod};

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Whether a pod references any secret.
pub fn references_secrets(object: &Value) -> bool {
    let named = |field: Option<&Value>| field.and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let pulls = meta::list_at(object, &["spec", "imagePullSecrets"]);
    let volumes = meta::list_at(object, &["spec", "volumes"]);
    let by_volume = |volume: &Value| {
        POD_SECRETS
            .iter()
            .any(|(source, path)| named(meta::value_at(volume, &[source]).and_then(|at| meta::value_at(at, path))))
            || meta::list_at(volume, &["projected", "sources"])
                .iter()
                .any(|source| named(meta::value_at(source, &["secret", "name"])))
    };
    pulls.iter().any(|pull| named(pull.get("name")))
        || volumes.iter().any(by_volume)
        || pod::containers(object).any(|container| referenced_secrets(container).next().is_some())
}

/// The secrets that a container references, each with the kind of reference.
fn referenced_secrets(container: &Value) -> impl Iterator<Item = (String, &str)> {
    let env = meta::list_at(container, &["env"]).iter().filter_map(|env| {
        let name = meta::value_at(env, &["valueFrom", "secretKeyRef"])?;
        Some((format!("envVar {}", meta::string_at(env, &["name"])), meta::string_at(name, &["name"])))
    });
    let from = meta::list_at(container, &["envFrom"]).iter().filter_map(|from| {
        let name = meta::value_at(from, &["secretRef"])?;
        Some(("envFrom".to_owned(), meta::string_at(name, &["name"])))
    });
    env.chain(from)
}

/// Checks the secrets of a new pod.
pub fn check_pod_secrets(account: &Value, pod: &Value) -> Result<(), DenialReason> {
    if !enforces_mountable_secrets(account) {
        return Ok(());
    }
    let (allowed, name) = (secret_names(account, "secrets"), meta::name(account));
    for volume in meta::list_at(pod, &["spec", "volumes"]) {
        let Some(secret) = meta::value_at(volume, &["secret"]) else { continue };
        let secret = meta::string_at(secret, &["secretName"]);
        if !allowed.contains(secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not \
                 reference that secret"
            )
            .into());
        }
    }
    for (list, kind) in &pod::CONTAINER_LISTS[..2] {
        check_container_secrets(&allowed, name, (list, kind), pod)?;
    }
    let pulls = secret_names(account, "imagePullSecrets");
    for (at, pull) in meta::list_at(pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
        let pull = meta::string_at(pull, &["name"]);
        if !pulls.contains(pull) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{pull}\" is not allowed because service account {name} does not reference \
                 that imagePullSecret"
            ).into());
        }
    }
    Ok(())
}

/// Checks the secrets of ephemeral containers.
pub fn check_ephemeral_secrets(account: &Value, pod: &Value) -> Result<(), DenialReason> {
    if !enforces_mountable_secrets(account) {
        return Ok(());
    }
    let (list, kind) = &pod::CONTAINER_LISTS[2];
    check_container_secrets(&secret_names(account, "secrets"), meta::name(account), (list, kind), pod)
}

fn check_container_secrets(
    allowed: &BTreeSet<&str>,
    account: &str,
    (list, kind): (&str, &str),
    pod: &Value,
) -> Result<(), DenialReason> {
    for container in meta::list_at(pod, &["spec", list]) {
        if let Some((how, secret)) = referenced_secrets(container).find(|(_, secret)| !allowed.contains(secret)) {
            let container = meta::string_at(container, &["name"]);
            return Err(format!(
                "{kind} {container} with {how} referencing secret.secretName=\"{secret}\" is not allowed because service \
                 account {account} does not reference that secret"
            ).into());
        }
    }
    Ok(())
}

fn enforces_mountable_secrets(account: &Value) -> bool {
    matches!(
        meta::string_at(account, &["metadata", "annotations", ENFORCE]),
        "1" | "t" | "T" | "true" | "TRUE" | "True"
    )
}

fn secret_names<'a>(account: &'a Value, list: &str) -> BTreeSet<&'a str> {
    meta::list_at(account, &[list]).iter().map(|reference| meta::string_at(reference, &["name"])).collect()
}
