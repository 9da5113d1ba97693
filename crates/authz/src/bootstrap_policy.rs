//! The RBAC policy of a new cluster, read from `bootstrap_policy.txt`.

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{
    bootstrap_table::{self as lines, TableRule, malformed_line},
    loopback,
};
use serde_json::json;

const TABLE: &str = include_str!("bootstrap_policy.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
/// Annotation that administrators set to `false` to keep their changes.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// An object of the bootstrap policy.
pub struct PolicyObject {
    /// The resource of the object.
    pub resource: &'static Resource,
    /// The object.
    pub object: Value,
}

/// Returns all objects of the policy.
pub fn policy_objects() -> Result<Vec<PolicyObject>, Status> {
    let mut objects: Vec<PolicyObject> = Vec::new();
    for line in lines::table_lines(TABLE) {
        match lines::parse_rule(line) {
            Some(rule) => {
                let role = objects.iter_mut().rev().find(|wanted| wanted.object.get("rules").is_some());
                let rules = role.and_then(|role| role.object["rules"].as_array_mut());
                rules.ok_or_else(|| malformed_line(line))?.push(rule_object(&rule));
            }
            None => objects.extend(parse_header(line).ok_or_else(|| malformed_line(line))??),
        }
    }
    Ok(objects)
}

/// Returns the rules of a ClusterRole; none if it does not exist.
pub fn cluster_role_rules(name: &str) -> Vec<Value> {
    let objects = policy_objects().unwrap_or_default();
    let role = objects.iter().find(|one| one.resource.name == "clusterroles" && meta::name(&one.object) == name);
    role.map(|role| meta::list_at(&role.object, &["rules"]).to_vec()).unwrap_or_default()
}

fn parse_header(line: &str) -> Option<Result<Vec<PolicyObject>, Status>> {
    let (kind, rest) = line.split_once(' ')?;
    let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(match kind {
        "clusterrole" => new_policy_object("clusterroles", build_role("", name, words)).map(|role| vec![role]),
        "controller" => controller_role(name, words),
        "clusterbinding" => new_policy_object("clusterrolebindings", build_binding("", name, words, "ClusterRole")?)
            .map(|one| vec![one]),
        "role" => {
            let (namespace, name) = name.split_once('/')?;
            new_policy_object("roles", build_role(namespace, name, words)).map(|role| vec![role])
        }
        "binding" => {
            let (namespace, name) = name.split_once('/')?;
            new_policy_object("rolebindings", build_binding(namespace, name, words, "Role")?).map(|one| vec![one])
        }
        _ => return None,
    })
}

/// Adds the binding first: the rules that follow belong to the last role.
fn controller_role(name: &str, words: &str) -> Result<Vec<PolicyObject>, Status> {
    let full = format!("system:controller:{name}");
    let bound = build_binding("", &full, &format!("to {full}: account:kube-system/{name}"), "ClusterRole");
    let bound = bound.ok_or_else(|| malformed_line(name))?;
    Ok(vec![
        new_policy_object("clusterrolebindings", bound)?,
        new_policy_object("clusterroles", build_role("", &full, words))?,
    ])
}

fn new_policy_object(resource: &str, object: Value) -> Result<PolicyObject, Status> {
    Ok(PolicyObject { resource: loopback::find_resource(GROUP, "v1", resource)?, object })
}

fn object_metadata(namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name, "annotations": {AUTO_UPDATE: "true"}, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

fn build_role(namespace: &str, name: &str, words: &str) -> Value {
    let mut role = json!({"metadata": object_metadata(namespace, name), "rules": []});
    let words: Vec<&str> = words.split(' ').collect();
    let mut selectors = Vec::new();
    for pair in words.chunks(2) {
        match pair {
            ["into", target] => role["metadata"]["labels"][format!("{AGGREGATE}{target}")] = "true".into(),
            ["of", target] => selectors.push(json!({"matchLabels": {format!("{AGGREGATE}{target}"): "true"}})),
            _ => {}
        }
    }
    if !selectors.is_empty() {
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        // The aggregation controller sets the rules.
        role["rules"] = Value::Null;
    }
    role
}

fn build_binding(namespace: &str, name: &str, words: &str, kind: &str) -> Option<Value> {
    let (role, subjects) = words
        .strip_prefix("to ")?
        .split_once(": ")
        .or_else(|| Some((words.strip_prefix("to ")?.strip_suffix(':')?, "")))?;
    let subjects: Option<Vec<Value>> = subjects.split_whitespace().map(parse_subject).collect();
    let mut binding = json!({
        "metadata": object_metadata(namespace, name), "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    });
    if let Some(subjects) = subjects.filter(|subjects| !subjects.is_empty()) {
        binding["subjects"] = subjects.into();
    }
    Some(binding)
}

fn parse_subject(text: &str) -> Option<Value> {
    Some(match lines::parse_subject(text)? {
        ("ServiceAccount", namespace, name) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        (kind, _, name) => json!({"apiGroup": GROUP, "kind": kind, "name": name}),
    })
}

fn rule_object(rule: &TableRule<'_>) -> Value {
    match rule {
        TableRule::NonResource(verbs, paths) => {
            json!({"verbs": lines::parse_list(verbs), "nonResourceURLs": lines::parse_list(paths)})
        }
        TableRule::Resource(verbs, groups, resources, words) => {
            let mut object = json!({
                "verbs": lines::parse_list(verbs), "apiGroups": lines::parse_list(groups), "resources": lines::parse_list(resources),
            });
            if let ["named", names] = words.as_slice() {
                object["resourceNames"] = lines::parse_list(names);
            }
            object
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_object(kind: &str, name: &str) -> Value {
        let objects = policy_objects().unwrap();
        let found = objects.iter().find(|one| one.resource.name == kind && meta::name(&one.object) == name);
        found.unwrap().object.clone()
    }

    #[test]
    fn table_is_parsed() {
        let admin = find_object("clusterroles", "cluster-admin");
        assert_eq!(admin["rules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert_eq!(admin["rules"][1], json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        let edit = find_object("clusterroles", "edit");
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        assert_eq!(edit["aggregationRule"]["clusterRoleSelectors"].as_array().unwrap().len(), 1);
        let bound = find_object("clusterrolebindings", "system:controller:job-controller");
        assert_eq!(
            bound["subjects"][0],
            json!({"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"})
        );
        assert!(find_object("clusterrolebindings", "system:node").get("subjects").is_none());
    }
}
