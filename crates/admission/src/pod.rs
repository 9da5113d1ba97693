//! Accessors for pods that several plug-ins share: containers, tolerations, mirror pods.

use api::{Value, meta, quantity::Quantity};

/// The annotation of mirror pods, which represent a kubelet's static pods.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The container lists of a pod, and the name that messages use for a container of each.
pub const CONTAINER_LISTS: [(&str, &str); 3] =
    [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")];

/// Iterates over all containers of a pod.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS.iter().flat_map(|(list, _)| meta::list_at(pod, &["spec", list]))
}

/// Iterates mutably over the containers of one list.
pub fn containers_mut<'a>(pod: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Whether a pod is a mirror pod.
pub fn is_mirror_pod(pod: &Value) -> bool {
    meta::value_at(pod, &["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}

/// Parses a quantity as the API encodes it.
pub fn parse_quantity(amount: &Value) -> Option<Quantity> {
    Quantity::parse(amount.as_str()?)
}

/// Merges two lists of tolerations and drops those that another one includes.
pub fn merge_tolerations(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let known = merged.iter().any(|other| toleration_includes(other, toleration));
        let follows = all[at + 1..].iter().any(|other| other != toleration && toleration_includes(other, toleration));
        if !known && !follows {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether `other` tolerates every taint that `one` tolerates.
pub fn toleration_includes(other: &Value, one: &Value) -> bool {
    let text = |toleration: &'_ Value, field: &str| meta::string_at(toleration, &[field]).to_owned();
    let seconds = |toleration: &Value| meta::value_at(toleration, &["tolerationSeconds"]).and_then(Value::as_i64);
    if other == one {
        return true;
    }
    let every_key = text(other, "key").is_empty() && text(other, "operator") == "Exists";
    if text(one, "key") != text(other, "key") && !every_key {
        return false;
    }
    if text(one, "effect") != text(other, "effect") && !text(other, "effect").is_empty() {
        return false;
    }
    if let (Some(limit), "NoExecute") = (seconds(other), text(other, "effect").as_str())
        && seconds(one).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(other, "operator").as_str() {
        "Equal" | "" => text(one, "operator") == "Equal" && text(one, "value") == text(other, "value"),
        "Exists" => true,
        _ => false,
    }
}
