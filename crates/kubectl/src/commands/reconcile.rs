//! `kubectl auth reconcile`: roles and bindings that cover at least what the files say.

use api::Value;
use serde_json::json;

use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    output::write_err,
    printers::ObjectPrinter,
    resource::{DryRun, RequestOptions, ResourceBuilder, ResourceInfo},
    rest::{RestClient, RestRequest},
    session::Session,
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The change that is needed, and its differences.
struct Reconciliation {
    operation: &'static str,
    protected: bool,
    object: Value,
    missing: Vec<Value>,
    extra: Vec<Value>,
}

/// Reconciles the RBAC objects of files.
pub fn run(session: &Session) -> CommandResult {
    let mut builder = ResourceBuilder::from_session(session)?;
    if !builder.has_files() {
        crate::bail!("must specify one of -f and -k");
    }
    if !session.arguments().is_empty() {
        crate::bail!("no arguments are allowed");
    }
    let dry_run = DryRun::from_flags(&session.flags)?;
    if dry_run == DryRun::Server {
        crate::bail!("--dry-run=server for command reconcile is not supported yet");
    }
    let printer = ObjectPrinter::from_flags(&session.flags, &format!("reconciled{}", dry_run.suffix()))?;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.local = true;
    let client = session.client()?;
    builder.visit(session, &mut |mut info| {
        let Some(mapping) = rbac_mapping(&info) else {
            if info.mapping.group == GROUP {
                crate::bail!(
                    "only rbac.authorization.k8s.io/v1 is supported: not *{}.{}",
                    info.mapping.version,
                    info.mapping.kind
                );
            }
            return Ok(());
        };
        info.mapping = mapping;
        if info.mapping.namespaced && info.namespace.is_empty() {
            info.namespace.clone_from(&builder.namespace);
            crate::object::set_path(&mut info.object, "metadata.namespace", builder.namespace.clone().into());
        }
        let result = reconcile(session, client, &info, dry_run)?;
        printer.print(&result.object)?;
        report(session, &info, &result);
        Ok(())
    })
}

fn rbac_mapping(info: &ResourceInfo) -> Option<RestMapping> {
    let (group, version, kind) = crate::object::group_version_kind(&info.object);
    let resource = match kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        "RoleBinding" => "rolebindings",
        "ClusterRoleBinding" => "clusterrolebindings",
        _ => return None,
    };
    let namespaced = !kind.starts_with("Cluster");
    (group == GROUP && version == "v1").then(|| RestMapping {
        group,
        version,
        kind,
        resource: resource.into(),
        namespaced,
    })
}

fn reconcile(
    session: &Session,
    client: &RestClient,
    info: &ResourceInfo,
    dry_run: DryRun,
) -> CommandResult<Reconciliation> {
    let options = RequestOptions::default();
    for _ in 0..3 {
        let mut result = match info.fetch(client) {
            Ok(existing) => compare(session, &existing, &info.object),
            Err(error) if error.is_not_found() => Reconciliation {
                operation: "create",
                protected: false,
                object: info.object.clone(),
                missing: info.object.list(list_field(info)).to_vec(),
                extra: Vec::new(),
            },
            Err(error) => return Err(error),
        };
        if result.protected || dry_run != DryRun::None || result.operation.is_empty() {
            return Ok(result);
        }
        let outcome = match result.operation {
            "create" => {
                ensure_namespace(client, &info.namespace)?;
                info.create(client, &result.object, &options)
            }
            "recreate" => {
                info.delete(client, &json!({"kind": "DeleteOptions", "apiVersion": "v1"}))?;
                info.create(client, &result.object, &options)
            }
            _ => info.replace(client, &result.object, &options),
        };
        match outcome {
            Err(error) if ["AlreadyExists", "NotFound", "Conflict"].contains(&error.reason()) => {}
            outcome => {
                result.object = outcome?;
                return Ok(result);
            }
        }
    }
    Err(CommandError::new("exceeded maximum attempts"))
}

fn list_field(info: &ResourceInfo) -> &'static str {
    if info.mapping.kind.ends_with("Binding") { "subjects" } else { "rules" }
}

fn ensure_namespace(client: &RestClient, name: &str) -> CommandResult {
    if name.is_empty() {
        return Ok(());
    }
    let path = "/api/v1/namespaces";
    match client.send_json(RestRequest::get(format!("{path}/{name}"))) {
        Err(error) if error.is_not_found() => {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            client.send_json(RestRequest::new(http::Method::POST, path).with_json(&namespace)).map(drop)
        }
        outcome => outcome.map(drop),
    }
}

fn compare(session: &Session, existing: &Value, expected: &Value) -> Reconciliation {
    let annotations = existing.map("metadata.annotations");
    let protected = annotations.and_then(|all| all.get("rbac.authorization.kubernetes.io/autoupdate"))
        == Some(&Value::String("false".into()));
    let mut object = existing.clone();
    for field in ["annotations", "labels"] {
        let mut merged = expected["metadata"].map(field).cloned().unwrap_or_default();
        merged.extend(existing["metadata"].map(field).cloned().unwrap_or_default());
        if !merged.is_empty() {
            object["metadata"][field] = Value::Object(merged);
        }
    }
    let is_binding = expected.text("kind").ends_with("Binding");
    let (missing, extra) = if is_binding {
        let without = |of: &Value, other: &Value| -> Vec<Value> {
            of.list("subjects").iter().filter(|subject| !other.list("subjects").contains(subject)).cloned().collect()
        };
        (without(expected, existing), without(existing, expected))
    } else {
        let aggregated = |role: &Value| role.at("aggregationRule").is_some();
        let extra = match aggregated(expected) && aggregated(existing) {
            true => Vec::new(),
            false => uncovered(expected.list("rules"), existing.list("rules")),
        };
        (uncovered(existing.list("rules"), expected.list("rules")), extra)
    };
    let (field, flag) =
        if is_binding { ("subjects", "remove-extra-subjects") } else { ("rules", "remove-extra-permissions") };
    let remove = session.flags.bool(flag);
    if remove && !(missing.is_empty() && extra.is_empty()) {
        object[field] = expected.at(field).cloned().unwrap_or_default();
    } else if !missing.is_empty() {
        let mut all = existing.list(field).to_vec();
        all.extend(missing.iter().cloned());
        object[field] = all.into();
    }
    merge_aggregation(&mut object, expected, remove);
    let mut operation = if object == *existing { "" } else { "update" };
    if is_binding && existing.at("roleRef") != expected.at("roleRef") {
        object["roleRef"] = expected["roleRef"].clone();
        crate::object::remove_path(&mut object, "metadata.resourceVersion");
        crate::object::remove_path(&mut object, "metadata.uid");
        operation = "recreate";
    }
    Reconciliation { operation, protected, object, missing, extra }
}

fn merge_aggregation(object: &mut Value, expected: &Value, remove: bool) {
    let wanted = expected.list("aggregationRule.clusterRoleSelectors").to_vec();
    if expected.at("aggregationRule").is_none() {
        crate::object::remove_path(object, "aggregationRule");
    } else if remove {
        object["aggregationRule"] = expected["aggregationRule"].clone();
    } else {
        let mut selectors = object.list("aggregationRule.clusterRoleSelectors").to_vec();
        let missing: Vec<Value> = wanted.into_iter().filter(|selector| !selectors.contains(selector)).collect();
        if !missing.is_empty() {
            selectors.extend(missing);
            object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
    }
}

fn strings(rule: &Value, field: &str) -> Vec<String> {
    rule.list(field).iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// The single permissions of a rule.
fn break_down(rule: &Value) -> Vec<Value> {
    let mut single = Vec::new();
    for group in strings(rule, "apiGroups") {
        for resource in strings(rule, "resources") {
            for verb in strings(rule, "verbs") {
                let base = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
                let names = strings(rule, "resourceNames");
                if names.is_empty() {
                    single.push(base);
                    continue;
                }
                single.extend(names.iter().map(|name| {
                    let mut named = base.clone();
                    named["resourceNames"] = json!([name]);
                    named
                }));
            }
        }
    }
    for url in strings(rule, "nonResourceURLs") {
        for verb in strings(rule, "verbs") {
            single.push(json!({"verbs": [verb], "nonResourceURLs": [url]}));
        }
    }
    single
}

/// The permissions of `servants` that no rule of `owners` covers.
fn uncovered(owners: &[Value], servants: &[Value]) -> Vec<Value> {
    let single = servants.iter().flat_map(break_down);
    single.filter(|permission| !owners.iter().any(|owner| covers(owner, permission))).collect()
}

fn covers(owner: &Value, permission: &Value) -> bool {
    let all = |field: &str, fits: &dyn Fn(&str, &str) -> bool| {
        let owned = strings(owner, field);
        strings(permission, field).iter().all(|wanted| owned.iter().any(|owned| owned == "*" || fits(owned, wanted)))
    };
    let equal = |owned: &str, wanted: &str| owned == wanted;
    let resource = |owned: &str, wanted: &str| {
        let subresource = wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        owned == wanted || subresource.is_some_and(|pattern| pattern == owned)
    };
    let url = |owned: &str, wanted: &str| {
        owned == wanted || owned.strip_suffix('*').is_some_and(|prefix| wanted.starts_with(prefix))
    };
    let (owned_names, wanted_names) = (strings(owner, "resourceNames"), strings(permission, "resourceNames"));
    let names = owned_names.is_empty()
        || !wanted_names.is_empty() && wanted_names.iter().all(|name| owned_names.contains(name));
    all("verbs", &equal)
        && all("apiGroups", &equal)
        && all("resources", &resource)
        && all("nonResourceURLs", &url)
        && names
}

fn report(session: &Session, info: &ResourceInfo, result: &Reconciliation) {
    if result.operation.is_empty() {
        return;
    }
    let caveat = if result.protected {
        ", but object opted out (rbac.authorization.kubernetes.io/autoupdate: false)"
    } else {
        ""
    };
    let mut text = format!("\treconciliation required {}{caveat}\n", result.operation);
    let is_binding = info.mapping.kind.ends_with("Binding");
    let (what, flag) =
        if is_binding { ("subjects", "remove-extra-subjects") } else { ("rules", "remove-extra-permissions") };
    let mut list = |title: String, items: &[Value]| {
        if !items.is_empty() {
            text += &format!("\t{title}:\n");
            items.iter().for_each(|item| text += &format!("\t\t{}\n", format_item(item, is_binding)));
        }
    };
    list(format!("missing {what} added"), &result.missing);
    if session.flags.bool(flag) {
        list(format!("extra {what} removed"), &result.extra);
    }
    write_err(&text);
}

/// An item as Go prints the structure.
fn format_item(item: &Value, is_binding: bool) -> String {
    if is_binding {
        return format!(
            "{{Kind:{} APIGroup:{} Name:{} Namespace:{}}}",
            item.text("kind"),
            item.text("apiGroup"),
            item.text("name"),
            item.text("namespace")
        );
    }
    let fields = [
        ("Verbs", "verbs"),
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
    ];
    let list = |field: &str| strings(item, field).join(" ");
    let shown: Vec<String> = fields.iter().map(|(title, field)| format!("{title}:[{}]", list(field))).collect();
    format!("{{{} NonResourceURLs:[{}]}}", shown.join(" "), list("nonResourceURLs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_that_no_rule_covers_are_missing() {
        let rule =
            |verbs: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": resources});
        let owners = [rule(&["get"], &["pods", "*/status"]), rule(&["*"], &["secrets"])];
        let wanted =
            [rule(&["get", "list"], &["pods"]), rule(&["delete"], &["secrets"]), rule(&["get"], &["nodes/status"])];
        assert_eq!(uncovered(&owners, &wanted), [rule(&["list"], &["pods"])]);
        let named = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert!(covers(&owners[0], &named));
        assert!(!covers(&named, &rule(&["get"], &["pods"])));
    }
}
