//! Generators of roles and role bindings.

use api::Value;
use serde_json::json;

use super::Generator;
use crate::{
    errln,
    errors::{CommandError, CommandResult, PartialResource},
    session::Session,
};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCE_VERBS: [&str; 14] = [
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
];
const URL_VERBS: [&str; 8] = ["*", "get", "post", "put", "delete", "patch", "head", "options"];
const SPECIAL_VERBS: [(&str, &[(&str, &str)]); 4] = [
    ("use", &[("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")]),
    ("bind", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    ("escalate", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    ("impersonate", &[("", "users"), ("", "serviceaccounts"), ("", "groups"), ("authentication.k8s.io", "userextras")]),
];

/// A resource as `--resource` names it.
struct RuleResource {
    group: String,
    resource: String,
    subresource: String,
}

fn distinct(values: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for value in values {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

fn verbs_of(session: &Session) -> Vec<String> {
    let verbs = distinct(session.flags.strings("verb"));
    if verbs.iter().any(|verb| verb == "*") { vec!["*".to_owned()] } else { verbs }
}

fn resources_of(session: &Session) -> Vec<RuleResource> {
    let mut out = Vec::new();
    for text in session.flags.strings("resource") {
        let (main, subresource) = text.split_once('/').unwrap_or((&text, ""));
        let (resource, group) = main.split_once('.').unwrap_or((main, ""));
        let entry = RuleResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
        };
        if text == "*" {
            return vec![entry];
        }
        out.push(entry);
    }
    out
}

/// The group and plural name of a resource.
fn resolve(session: &Session, entry: &RuleResource) -> CommandResult<Option<(String, String)>> {
    let found = session.look_up_resource(|data| {
        data.find_resource(&entry.resource, "", &entry.group).map(|found| (found.group.clone(), found.name.clone()))
    })?;
    Ok(found)
}

fn check_resources(session: &Session, verbs: &[String], resources: &[RuleResource]) -> CommandResult {
    for entry in resources {
        if entry.resource.is_empty() {
            crate::bail!("resource must be specified if apiGroup/subresource specified");
        }
        if entry.resource == "*" {
            return Ok(());
        }
        let resolved = resolve(session, entry)?;
        let (group, resource) = resolved.clone().unwrap_or((entry.group.clone(), entry.resource.clone()));
        let mut allowed = resolved.is_some();
        for verb in verbs {
            let Some((_, special)) = SPECIAL_VERBS.iter().find(|(name, _)| name == verb) else { continue };
            if !special.contains(&(group.as_str(), resource.as_str())) {
                crate::bail!("can not perform '{verb}' on '{resource}' in group '{group}'");
            }
            allowed = true;
        }
        if !allowed {
            let partial =
                PartialResource { group: entry.group.clone(), resource: entry.resource.clone(), ..Default::default() };
            return Err(CommandError::NoResourceMatch(partial));
        }
    }
    Ok(())
}

fn warn_about_verbs(verbs: &[String]) {
    for verb in verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(&verb.as_str())) {
        errln!("Warning: '{verb}' is not a standard resource verb");
    }
}

fn policy_rules(
    session: &Session,
    verbs: &[String],
    resources: &[RuleResource],
    urls: &[String],
) -> CommandResult<Vec<Value>> {
    let mut groups: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for entry in resources {
        let (group, mut resource) = resolve(session, entry)?.unwrap_or((entry.group.clone(), entry.resource.clone()));
        if !entry.subresource.is_empty() {
            resource = format!("{resource}/{}", entry.subresource);
        }
        let names = groups.entry(group).or_default();
        if !names.contains(&resource) {
            names.push(resource);
        }
    }
    let names = distinct(session.flags.strings("resource-name"));
    let rule = |(group, resources): (String, Vec<String>)| {
        let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
        if !names.is_empty() {
            rule["resourceNames"] = names.clone().into();
        }
        rule
    };
    let mut rules: Vec<Value> = groups.into_iter().map(rule).collect();
    if !urls.is_empty() {
        rules.push(json!({"verbs": verbs, "nonResourceURLs": urls}));
    }
    Ok(rules)
}

/// `create role`
pub fn role(generator: &Generator) -> CommandResult {
    let session = generator.session;
    let (verbs, resources) = (verbs_of(session), resources_of(session));
    if verbs.is_empty() {
        crate::bail!("at least one verb must be specified");
    }
    warn_about_verbs(&verbs);
    if resources.is_empty() {
        crate::bail!("at least one resource must be specified");
    }
    check_resources(session, &verbs, &resources)?;
    let rules = policy_rules(session, &verbs, &resources, &[])?;
    let object =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": generator.metadata(), "rules": rules});
    generator.finish(object, "roles", true, "")
}

/// `create clusterrole`
pub fn cluster_role(generator: &Generator) -> CommandResult {
    let session = generator.session;
    let (verbs, resources) = (verbs_of(session), resources_of(session));
    let urls = distinct(session.flags.strings("non-resource-url"));
    let mut object =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": generator.name}});
    let aggregation = session.flags.strings("aggregation-rule");
    if !aggregation.is_empty() {
        if !urls.is_empty() || !verbs.is_empty() || !resources.is_empty() || session.flags.changed("resource-name") {
            crate::bail!(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames"
            );
        }
        let mut labels = json!({});
        for pair in aggregation.iter().flat_map(|text| text.split(',')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            labels[key] = value.into();
        }
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object["rules"] = Value::Null;
        return generator.finish(object, "clusterroles", false, "");
    }
    if verbs.is_empty() {
        crate::bail!("at least one verb must be specified");
    }
    if resources.is_empty() && urls.is_empty() {
        crate::bail!("one of resource or nonResourceURL must be specified");
    }
    if !resources.is_empty() {
        warn_about_verbs(&verbs);
        check_resources(session, &verbs, &resources)?;
    }
    check_urls(&verbs, &urls)?;
    object["rules"] = policy_rules(session, &verbs, &resources, &urls)?.into();
    generator.finish(object, "clusterroles", false, "")
}

fn check_urls(verbs: &[String], urls: &[String]) -> CommandResult {
    if urls.is_empty() {
        return Ok(());
    }
    if let Some(verb) = verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str())) {
        crate::bail!("invalid verb: '{verb}' for nonResourceURL");
    }
    for url in urls.iter().filter(|url| *url != "*") {
        if !url.starts_with('/') {
            crate::bail!("nonResourceURL should start with /");
        }
        if url[..url.len() - 1].contains('*') {
            crate::bail!("nonResourceURL only supports wildcard matches when '*' is at the end");
        }
    }
    Ok(())
}

/// The subjects that `--user`, `--group` and `--serviceaccount` name.
fn subjects_of(session: &Session) -> CommandResult<Vec<Value>> {
    let flags = &session.flags;
    let subject = |kind: &str, name: String| json!({"kind": kind, "apiGroup": GROUP, "name": name});
    let mut subjects: Vec<Value> = flags.strings("user").into_iter().map(|name| subject("User", name)).collect();
    subjects.extend(flags.strings("group").into_iter().map(|name| subject("Group", name)));
    for account in flags.strings("serviceaccount") {
        let parts: Vec<&str> = account.split(':').collect();
        match parts.as_slice() {
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                subjects.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
            }
            _ => crate::bail!("serviceaccount must be <namespace>:<name>"),
        }
    }
    Ok(subjects)
}

fn binding(generator: &Generator, kind: &str, metadata: Value, role: (&str, String)) -> CommandResult<Value> {
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1}});
    let subjects = subjects_of(generator.session)?;
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    Ok(object)
}

/// `create rolebinding`
pub fn role_binding(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (role, cluster_role) = (flags.string("role"), flags.string("clusterrole"));
    if role.is_empty() == cluster_role.is_empty() {
        crate::bail!("exactly one of clusterrole or role must be specified");
    }
    let reference = if role.is_empty() { ("ClusterRole", cluster_role) } else { ("Role", role) };
    let object = binding(generator, "RoleBinding", generator.metadata(), reference)?;
    generator.finish(object, "rolebindings", true, "failed to create rolebinding: ")
}

/// `create clusterrolebinding`
pub fn cluster_role_binding(generator: &Generator) -> CommandResult {
    let reference = ("ClusterRole", generator.session.flags.string("clusterrole"));
    let object = binding(generator, "ClusterRoleBinding", json!({"name": generator.name}), reference)?;
    generator.finish(object, "clusterrolebindings", false, "failed to create clusterrolebinding: ")
}
