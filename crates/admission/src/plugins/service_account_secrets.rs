//! Enforces mountable secrets: a pod may use only those that its service account lists, if the account says so.

use std::collections::BTreeSet;

use api::{Value, meta};
use authz::POD_SECRETS;

use crate::pod;

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Whether a pod references any secret.
pub fn references_secrets(object: &Value) -> bool {
    let named = |place: Option<&Value>| place.and_then(Value::as_str).is_some_and(|name| !name.is_empty());
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
        || pod::containers(object).any(|container| uses(container).next().is_some())
}

/// The secrets that a container references, each with the kind of reference.
fn uses(container: &Value) -> impl Iterator<Item = (String, &str)> {
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
pub fn check_pod(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (allowed, name) = (names(account, "secrets"), meta::name(account));
    for volume in meta::list_at(pod, &["spec", "volumes"]) {
        let Some(secret) = meta::value_at(volume, &["secret"]) else { continue };
        let secret = meta::string_at(secret, &["secretName"]);
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
    for (at, pull) in meta::list_at(pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
        let pull = meta::string_at(pull, &["name"]);
        if !pulls.contains(pull) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{pull}\" is not allowed because service account {name} does not reference \
                 that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Checks the secrets of ephemeral containers.
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
    for container in meta::list_at(pod, &["spec", list]) {
        if let Some((how, secret)) = uses(container).find(|(_, secret)| !allowed.contains(secret)) {
            let container = meta::string_at(container, &["name"]);
            return Err(format!(
                "{kind} {container} with {how} referencing secret.secretName=\"{secret}\" is not allowed because service \
                 account {account} does not reference that secret"
            ));
        }
    }
    Ok(())
}

fn enforces(account: &Value) -> bool {
    matches!(
        meta::string_at(account, &["metadata", "annotations", ENFORCE]),
        "1" | "t" | "T" | "true" | "TRUE" | "True"
    )
}

fn names<'a>(account: &'a Value, list: &str) -> BTreeSet<&'a str> {
    meta::list_at(account, &[list]).iter().map(|reference| meta::string_at(reference, &["name"])).collect()
}
