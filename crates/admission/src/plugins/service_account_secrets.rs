//! Which secrets a pod may use: where its service account says so, only those that the account names.

use std::collections::BTreeSet;

use api::{Value, meta};
use authz::POD_SECRETS;

use crate::pod;

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Whether a pod uses any secret at all.
pub fn references_secrets(object: &Value) -> bool {
    let named = |place: Option<&Value>| place.and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let pulls = meta::list(object, &["spec", "imagePullSecrets"]);
    let volumes = meta::list(object, &["spec", "volumes"]);
    let by_volume = |volume: &Value| {
        POD_SECRETS.iter().any(|(source, path)| named(meta::at(volume, &[source]).and_then(|at| meta::at(at, path))))
            || meta::list(volume, &["projected", "sources"])
                .iter()
                .any(|source| named(meta::at(source, &["secret", "name"])))
    };
    pulls.iter().any(|pull| named(pull.get("name")))
        || volumes.iter().any(by_volume)
        || pod::containers(object).any(|container| uses(container).next().is_some())
}

/// The secrets of a container, and how it refers to each.
fn uses(container: &Value) -> impl Iterator<Item = (String, &str)> {
    let env = meta::list(container, &["env"]).iter().filter_map(|env| {
        let name = meta::at(env, &["valueFrom", "secretKeyRef"])?;
        Some((format!("envVar {}", meta::text(env, &["name"])), meta::text(name, &["name"])))
    });
    let from = meta::list(container, &["envFrom"]).iter().filter_map(|from| {
        let name = meta::at(from, &["secretRef"])?;
        Some(("envFrom".to_owned(), meta::text(name, &["name"])))
    });
    env.chain(from)
}

/// Checks what a new pod uses.
pub fn check_pod(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (allowed, name) = (names(account, "secrets"), meta::name(account));
    for volume in meta::list(pod, &["spec", "volumes"]) {
        let Some(secret) = meta::at(volume, &["secret"]) else { continue };
        let secret = meta::text(secret, &["secretName"]);
        if !allowed.contains(secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not \
                 reference that secret"
            ));
        }
    }
    for (list, kind) in &pod::LISTS[..2] {
        check_containers(&allowed, name, (list, kind), pod)?;
    }
    let pulls = names(account, "imagePullSecrets");
    for (at, pull) in meta::list(pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
        let pull = meta::text(pull, &["name"]);
        if !pulls.contains(pull) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{pull}\" is not allowed because service account {name} does not reference \
                 that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Checks what containers for debugging use.
pub fn check_ephemeral(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (list, kind) = &pod::LISTS[2];
    check_containers(&names(account, "secrets"), meta::name(account), (list, kind), pod)
}

fn check_containers(
    allowed: &BTreeSet<&str>,
    account: &str,
    (list, kind): (&str, &str),
    pod: &Value,
) -> Result<(), String> {
    for container in meta::list(pod, &["spec", list]) {
        if let Some((how, secret)) = uses(container).find(|(_, secret)| !allowed.contains(secret)) {
            let container = meta::text(container, &["name"]);
            return Err(format!(
                "{kind} {container} with {how} referencing secret.secretName=\"{secret}\" is not allowed because service \
                 account {account} does not reference that secret"
            ));
        }
    }
    Ok(())
}

fn enforces(account: &Value) -> bool {
    matches!(meta::text(account, &["metadata", "annotations", ENFORCE]), "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn names<'a>(account: &'a Value, list: &str) -> BTreeSet<&'a str> {
    meta::list(account, &[list]).iter().map(|reference| meta::text(reference, &["name"])).collect()
}
