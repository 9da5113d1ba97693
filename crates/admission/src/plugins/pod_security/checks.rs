//! The pod that checks evaluate, their violations, and the formatting of both.

use api::{Value, meta};

/// A pod or the pod template of a workload.
pub struct EvaluatedPod<'a> {
    /// The pod's metadata.
    pub metadata: &'a Value,
    /// The pod's spec.
    pub spec: &'a Value,
}

/// A violation of a pod security level.
pub struct Violation {
    /// The forbidden reason, in short.
    pub reason: &'static str,
    /// The containers and fields concerned.
    pub detail: String,
}

/// Evaluates one check; `None` if the pod passes.
pub type PodCheck = fn(&EvaluatedPod<'_>) -> Option<Violation>;

impl<'a> EvaluatedPod<'a> {
    /// Iterates over all containers.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| meta::list_at(spec, &[list]))
    }

    /// The names of the containers that satisfy the predicate.
    pub fn matching_containers(&self, bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|container| bad(container))
            .map(|container| meta::string_at(container, &["name"]))
            .collect()
    }

    /// A field of the pod security context.
    pub fn security_context(&self, field: &str) -> Option<&'a Value> {
        meta::value_at(self.spec, &["securityContext", field])
    }

    pub fn unless_windows(&self, check: PodCheck) -> Option<Violation> {
        if meta::string_at(self.spec, &["os", "name"]) == "windows" { None } else { check(self) }
    }

    /// Skips a check for pods with their own user namespace, whose root is unprivileged on the host.
    pub fn unless_user_namespace(&self, check: PodCheck) -> Option<Violation> {
        if self.spec["hostUsers"] == false { None } else { check(self) }
    }
}

/// A field of a container's security context.
pub fn context_field<'a>(container: &'a Value, field: &str) -> Option<&'a Value> {
    meta::value_at(container, &["securityContext", field])
}

/// Formats a list as `"a", "b"`.
pub fn join_quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Formats a list as `container "a"` or `containers "a", "b"`.
pub fn format_containers(names: &[&str]) -> String {
    format!("{} {}", pluralize(names.len(), "container", "containers"), join_quoted(names))
}

/// Formats the setters of a field: the pod, containers, or both.
pub fn format_setters(pod: bool, names: &[&str]) -> Option<String> {
    let all: Vec<String> = pod
        .then(|| "pod".to_owned())
        .into_iter()
        .chain((!names.is_empty()).then(|| format_containers(names)))
        .collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Selects the singular or the plural.
pub fn pluralize<'a>(count: usize, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}
