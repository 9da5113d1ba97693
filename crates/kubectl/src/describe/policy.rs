//! Descriptions of disruption budgets, roles, bindings, priority classes and signing requests.

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    DescribeContext,
    description::{Description, format_time, scalar_text},
};
use crate::object::{ObjectFields, name_of, namespace_of};

/// PodDisruptionBudgets.
pub fn disruption_budget(context: &DescribeContext, out: &mut Description, budget: &Value) {
    out.field(0, "Name", name_of(budget));
    out.field(0, "Namespace", namespace_of(budget));
    for (label, path) in [("Min available", "spec.minAvailable"), ("Max unavailable", "spec.maxUnavailable")] {
        if let Some(value) = budget.at(path) {
            out.field(0, label, &scalar_text(Some(value)));
        }
    }
    let selector = budget.at("spec.selector").map(api::selector::format_label_selector);
    out.field(0, "Selector", &selector.unwrap_or_else(|| "<unset>".to_owned()));
    out.raw("Status:\n");
    for (label, path) in [
        ("Allowed disruptions", "status.disruptionsAllowed"),
        ("Current", "status.currentHealthy"),
        ("Desired", "status.desiredHealthy"),
        ("Total", "status.expectedPods"),
    ] {
        out.field(2, label, &budget.integer(path).unwrap_or(0).to_string());
    }
    context.events(out, budget);
}

fn bracketed(items: &[Value]) -> String {
    let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    format!("[{}]", texts.join(" "))
}

/// Roles and ClusterRoles: a row per resource, name or URL.
pub fn role(out: &mut Description, role: &Value) {
    out.metadata(role, false);
    out.raw("PolicyRule:\n  Resources\tNon-Resource URLs\tResource Names\tVerbs\n  ---------\t-----------------\t--------------\t-----\n");
    for row in policy_rows(role.list("rules")) {
        out.raw(&format!("  {row}\n"));
    }
}

/// A rule: resource, URLs, names and verbs.
type PolicyRow = (String, String, String, Vec<Value>);

/// The rows of a table of rules: one per resource, name or URL; compact tables are merged and sorted.
pub fn policy_rows(rules: &[Value]) -> Vec<String> {
    let mut rows: Vec<PolicyRow> = Vec::new();
    for rule in rules {
        let verbs = rule.list("verbs").to_vec();
        for url in rule.list("nonResourceURLs").iter().filter_map(Value::as_str) {
            rows.push((String::new(), format!("[{url}]"), "[]".to_owned(), verbs.clone()));
        }
        for group in rule.list("apiGroups").iter().filter_map(Value::as_str) {
            for resource in rule.list("resources").iter().filter_map(Value::as_str) {
                let full = if group.is_empty() { resource.to_owned() } else { join_group(resource, group) };
                let names: Vec<&str> = rule.list("resourceNames").iter().filter_map(Value::as_str).collect();
                if names.is_empty() {
                    rows.push((full.clone(), "[]".to_owned(), "[]".to_owned(), verbs.clone()));
                }
                for name in names {
                    rows.push((full.clone(), "[]".to_owned(), format!("[{name}]"), verbs.clone()));
                }
            }
        }
    }
    // Rows of the same resource become one.
    let mut merged: Vec<PolicyRow> = Vec::new();
    for row in rows {
        match merged.iter_mut().find(|known| !row.0.is_empty() && known.0 == row.0 && known.2 == row.2) {
            Some(known) => known.3.extend(row.3),
            None => merged.push(row),
        }
    }
    merged.sort_by_key(sort_key);
    let text =
        |(resource, urls, names, verbs): PolicyRow| format!("{resource}\t{urls}\t{names}\t{}", bracketed(&verbs));
    merged.into_iter().map(text).collect()
}

/// The text by which upstream sorts: the rule as its generated `String` method prints it.
fn sort_key(row: &PolicyRow) -> String {
    let (resource, urls, names, verbs) = row;
    let (main, sub) =
        resource.split_once('/').map_or((resource.as_str(), String::new()), |(main, sub)| (main, format!("/{sub}")));
    let (name, group) = main.split_once('.').unwrap_or((main, ""));
    let resources = format!("[{name}{sub}]");
    format!(
        "&PolicyRule{{Verbs:{},APIGroups:[{group}],Resources:{resources},ResourceNames:{names},NonResourceURLs:{urls},}}",
        bracketed(verbs)
    )
}

fn join_group(resource: &str, group: &str) -> String {
    match resource.split_once('/') {
        Some((main, sub)) => format!("{main}.{group}/{sub}"),
        None => format!("{resource}.{group}"),
    }
}

/// RoleBindings and ClusterRoleBindings.
pub fn role_binding(out: &mut Description, binding: &Value) {
    out.metadata(binding, false);
    out.raw(&format!("Role:\n  Kind:\t{}\n  Name:\t{}\n", binding.text("roleRef.kind"), binding.text("roleRef.name")));
    out.raw("Subjects:\n  Kind\tName\tNamespace\n  ----\t----\t---------\n");
    for subject in binding.list("subjects") {
        out.raw(&format!("  {}\t{}\t{}\n", subject.text("kind"), subject.text("name"), subject.text("namespace")));
    }
}

/// PriorityClasses.
pub fn priority_class(context: &DescribeContext, out: &mut Description, class: &Value) {
    out.field(0, "Name", name_of(class));
    out.field(0, "Value", &class.integer("value").unwrap_or(0).to_string());
    out.field(0, "GlobalDefault", &class.flag("globalDefault").to_string());
    let policy = class.text("preemptionPolicy");
    out.field(0, "PreemptionPolicy", if policy.is_empty() { "PreemptLowerPriority" } else { policy });
    out.field(0, "Description", class.text("description"));
    let pairs: Vec<String> = class
        .map("metadata.annotations")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    out.field(0, "Annotations", &if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") });
    context.events(out, class);
}

/// CertificateSigningRequests.
pub fn signing_request(context: &DescribeContext, out: &mut Description, request: &Value) {
    out.metadata(request, false);
    out.field(0, "CreationTimestamp", &format_time(request.text("metadata.creationTimestamp")));
    out.field(0, "Requesting User", request.text("spec.username"));
    if !request.text("spec.signerName").is_empty() {
        out.field(0, "Signer", request.text("spec.signerName"));
    }
    if let Some(seconds) = request.integer("spec.expirationSeconds") {
        out.field(0, "Requested Duration", &api::time::human_duration(seconds));
    }
    out.field(0, "Status", &request_status(request));
    out.raw("Subject:\n");
    let pem = STANDARD.decode(request.text("spec.request")).unwrap_or_default();
    subject(out, &pem);
    context.events(out, request);
}

fn request_status(request: &Value) -> String {
    let has = |kind: &str| request.list("status.conditions").iter().any(|condition| condition.text("type") == kind);
    let mut words = Vec::new();
    if has("Denied") {
        words.push("Denied");
    } else if has("Approved") {
        words.push("Approved");
    } else {
        words.push("Pending");
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !request.text("status.certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}

fn subject(out: &mut Description, pem: &[u8]) {
    use x509_parser::prelude::*;
    let der = x509_parser::pem::parse_x509_pem(pem).map(|(_, pem)| pem.contents).unwrap_or_default();
    let Ok((_, request)) = X509CertificationRequest::from_der(&der) else { return };
    let subject = &request.certification_request_info.subject;
    let text = |iterator: Vec<String>| iterator.join(",");
    let collect = |oid: &x509_parser::der_parser::Oid| -> Vec<String> {
        subject.iter_by_oid(oid).filter_map(|value| value.as_str().ok().map(str::to_owned)).collect()
    };
    out.raw(&format!("\tCommon Name:\t{}\n", text(collect(&x509_parser::oid_registry::OID_X509_COMMON_NAME))));
    out.raw(&format!("\tSerial Number:\t{}\n", text(collect(&x509_parser::oid_registry::OID_X509_SERIALNUMBER))));
    for (label, oid) in [
        ("Organization", x509_parser::oid_registry::OID_X509_ORGANIZATION_NAME),
        ("Organizational Unit", x509_parser::oid_registry::OID_X509_ORGANIZATIONAL_UNIT),
        ("Country", x509_parser::oid_registry::OID_X509_COUNTRY_NAME),
        ("Locality", x509_parser::oid_registry::OID_X509_LOCALITY_NAME),
        ("Province", x509_parser::oid_registry::OID_X509_STATE_OR_PROVINCE_NAME),
    ] {
        let values = collect(&oid);
        if !values.is_empty() {
            out.raw(&format!("\t{label}:\t{}\n", text(values)));
        }
    }
}
