//! `kubectl auth can-i` and `whoami`

use api::Value;
use serde_json::json;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    outln,
    output::{write_err, write_out},
    printers::ObjectPrinter,
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
};

const RESOURCE_VERBS: [&str; 16] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
];
const URL_VERBS: [&str; 8] = ["get", "put", "post", "head", "options", "delete", "patch", "*"];

/// Warns about a verb that neither the server nor a usual extension has.
fn warn_about_verb(verb: &str, known: &[&str]) {
    if !known.contains(&verb) {
        write_err(&format!("Warning: verb '{verb}' is not a known verb\n\n"));
    }
}

/// `auth can-i`
pub fn run_can_i(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let all = flags.bool("all-namespaces");
    let namespace = if all { String::new() } else { session.namespace()?.0 };
    if flags.bool("list") {
        if !session.arguments().is_empty() {
            crate::bail!("list option must be specified with no arguments");
        }
        if flags.bool("quiet") || all || !flags.string("subresource").is_empty() {
            crate::bail!("list option can't be specified with neither quiet, all-namespaces nor subresource options");
        }
        return list_rules(session, &namespace);
    }
    let [verb, target] = session.arguments() else {
        crate::bail!(
            "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples."
        );
    };
    check_access(session, verb, target, &namespace, all)
}

fn check_access(session: &Session, verb: &str, target: &str, namespace: &str, all: bool) -> CommandResult {
    let subresource = session.flags.string("subresource");
    let spec = if target.starts_with('/') {
        if !subresource.is_empty() {
            crate::bail!("--subresource can not be used with NonResourceURL");
        }
        warn_about_verb(verb, &URL_VERBS);
        json!({"nonResourceAttributes": {"verb": verb, "path": target}})
    } else {
        let (resource, name) = target.split_once('/').unwrap_or((target, ""));
        resource_attributes(session, verb, resource, name, namespace, all, &subresource)?
    };
    if session.flags.bool("no-headers") {
        crate::bail!("--no-headers cannot be set without --list specified");
    }
    let body = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": spec, "status": {"allowed": false}});
    let request =
        RestRequest::new(http::Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").with_json(&body);
    let review = session.client()?.send_json(request)?;
    let quiet = session.flags.bool("quiet");
    if review.flag("status.allowed") {
        if !quiet {
            outln!("yes");
        }
        return Ok(());
    }
    if !quiet {
        let mut text = "no".to_owned();
        for (field, prefix) in [("status.reason", " - "), ("status.evaluationError", " - ")] {
            if !review.text(field).is_empty() {
                text += &format!("{prefix}{}", review.text(field));
            }
        }
        outln!("{text}");
    }
    Err(CommandError::Exit)
}

fn resource_attributes(
    session: &Session,
    verb: &str,
    resource: &str,
    name: &str,
    namespace: &str,
    all: bool,
    subresource: &str,
) -> CommandResult<Value> {
    let mut attributes = json!({"verb": verb});
    let mut place = namespace.to_owned();
    if resource == "*" {
        attributes["resource"] = "*".into();
    } else {
        let found = session.look_up_resource(|data| data.find_argument(resource)).unwrap_or(None);
        match found {
            Some(mapping) => {
                attributes["resource"] = mapping.resource.clone().into();
                if !mapping.group.is_empty() {
                    attributes["group"] = mapping.group.clone().into();
                }
                if !mapping.namespaced && !all && !namespace.is_empty() {
                    let group =
                        if mapping.group.is_empty() { String::new() } else { format!(" in group '{}'", mapping.group) };
                    write_err(&format!("Warning: resource '{}' is not namespace scoped{group}\n\n", mapping.resource));
                    place = namespace.to_owned();
                }
            }
            None => {
                let (plain, group) = resource.split_once('.').unwrap_or((resource, ""));
                let text =
                    if group.is_empty() { format!("'{plain}'") } else { format!("'{plain}' in group '{group}'") };
                // Those are names for the verb impersonate, which are in no discovery document.
                if !["users", "groups"].contains(&resource) {
                    write_err(&format!("Warning: the server doesn't have a resource type {text}\n\n"));
                }
                attributes["resource"] = resource.into();
            }
        }
    }
    if !all {
        warn_about_verb(verb, &RESOURCE_VERBS);
    }
    for (field, value) in [("name", name), ("subresource", subresource), ("namespace", place.as_str())] {
        if !value.is_empty() {
            attributes[field] = value.into();
        }
    }
    Ok(json!({"resourceAttributes": attributes}))
}

fn list_rules(session: &Session, namespace: &str) -> CommandResult {
    let body = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": namespace}});
    let request =
        RestRequest::new(http::Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews").with_json(&body);
    let review = session.client()?.send_json(request)?;
    let error = review.text("status.evaluationError");
    if review.flag("status.incomplete") && !error.is_empty() {
        errln!("warning: the list may be incomplete: {error}");
    }
    let mut rules: Vec<Value> = review.list("status.resourceRules").to_vec();
    rules.extend(review.list("status.nonResourceRules").iter().cloned());
    let mut writer = TabWriter::for_tables();
    if !session.flags.bool("no-headers") {
        writer.push("Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    }
    for row in crate::describe::policy_rows(&rules) {
        writer.push(&format!("{row}\n"));
    }
    write_out(&writer.flush());
    Ok(())
}

/// `auth whoami`
pub fn run_whoami(session: &Session) -> CommandResult {
    let printer = ObjectPrinter::from_flags(&session.flags, "")?;
    let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "status": {"userInfo": {}}});
    let request =
        RestRequest::new(http::Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews").with_json(&body);
    let review = session.client()?.send_json(request)?;
    if !printer.is_message() {
        return printer.print_typed(&review);
    }
    let user = review.at("status.userInfo").cloned().unwrap_or_default();
    let mut writer = TabWriter::for_tables();
    writer.push("ATTRIBUTE\tVALUE\n");
    for (label, field) in [("Username", "username"), ("UID", "uid")] {
        if !user.text(field).is_empty() {
            writer.push(&format!("{label}\t{}\n", user.text(field)));
        }
    }
    let bracketed = |items: &[Value]| items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    if !user.list("groups").is_empty() {
        writer.push(&format!("Groups\t[{}]\n", bracketed(user.list("groups"))));
    }
    for (key, values) in user.map("extra").into_iter().flatten() {
        let values = values.as_array().map(|values| bracketed(values)).unwrap_or_default();
        writer.push(&format!("Extra: {key}\t[{values}]\n"));
    }
    write_out(&writer.flush());
    Ok(())
}
