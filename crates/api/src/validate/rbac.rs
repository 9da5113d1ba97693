//! Validation of roles and bindings.

use super::{Errors, at::At, names, selector};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The faults of a role in a namespace.
pub(super) fn role(new: &At, _: Option<&At>, e: &mut Errors) {
    new.get("rules").items().for_each(|rule| self::rule(&rule, true, e));
}

/// The faults of a role for the cluster.
pub(super) fn cluster_role(new: &At, old: Option<&At>, e: &mut Errors) {
    new.get("rules").items().for_each(|rule| self::rule(&rule, false, e));
    let aggregation = new.get("aggregationRule");
    if !aggregation.exists() {
        return;
    }
    let list = aggregation.get("clusterRoleSelectors");
    if list.is_empty() {
        list.required(e, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    let lenient = old.is_some_and(|old| {
        let rule = old.get("aggregationRule");
        rule.get("clusterRoleSelectors").items().any(|selector| selector::is_faulty(selector.value))
    });
    for selector in list.items() {
        selector::lenient(&selector, lenient, e);
        if selector::parsed(selector.value).is_err() {
            selector.invalid_as(e, crate::Value::Null, "invalid label selector.");
        }
    }
}

fn rule(at: &At, namespaced: bool, e: &mut Errors) {
    let (urls, groups, resources) = (at.get("nonResourceURLs"), at.get("apiGroups"), at.get("resources"));
    if at.get("verbs").is_empty() {
        at.get("verbs").required(e, "verbs must contain at least one value");
    }
    if !urls.is_empty() {
        if namespaced {
            urls.invalid(e, "namespaced rules cannot apply to non-resource URLs");
        }
        if !groups.is_empty() || !resources.is_empty() || !at.get("resourceNames").is_empty() {
            urls.invalid(e, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if groups.is_empty() {
        groups.required(e, "resource rules must supply at least one api group");
    }
    if resources.is_empty() {
        resources.required(e, "resource rules must supply at least one resource");
    }
}

/// The faults of a binding in a namespace.
pub(super) fn binding(new: &At, _: Option<&At>, e: &mut Errors) {
    bind(new, &["Role", "ClusterRole"], true, e);
}

/// The faults of a binding for the cluster.
pub(super) fn cluster_binding(new: &At, _: Option<&At>, e: &mut Errors) {
    bind(new, &["ClusterRole"], false, e);
}

fn bind(new: &At, kinds: &[&str], namespaced: bool, e: &mut Errors) {
    let role = new.get("roleRef");
    if role.get("apiGroup").text() != GROUP {
        role.get("apiGroup").unsupported(e, &[GROUP]);
    }
    if !kinds.contains(&role.get("kind").text()) {
        role.get("kind").unsupported(e, kinds);
    }
    role.get("name").required_form(e, names::path_segment);
    new.get("subjects").items().for_each(|subject| self::subject(&subject, namespaced, e));
}

/// What is particular to a changed binding; it is told last.
pub(super) fn role_kept(new: &At, old: &At, e: &mut Errors) {
    let role = new.get("roleRef");
    if role.value != old.get("roleRef").value {
        role.invalid_internal(e, "rbac/v1.RoleRef", "cannot change roleRef");
    }
}

fn subject(at: &At, namespaced: bool, e: &mut Errors) {
    let (kind, name, group) = (at.get("kind"), at.get("name"), at.get("apiGroup"));
    name.require(e);
    match kind.text() {
        "ServiceAccount" => {
            name.optional_form(e, names::subdomain);
            if !group.is_empty() {
                group.unsupported(e, &[""]);
            }
            if !namespaced {
                at.get("namespace").require(e);
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                group.unsupported(e, &[GROUP]);
            }
        }
        _ => kind.unsupported(e, &["ServiceAccount", "User", "Group"]),
    }
}
