//! Descriptions of config maps, secrets, service accounts, quotas, limits and namespaces.

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{DescribeContext, description::Description, description::scalar_text};
use crate::object::{ObjectFields, name_of, namespace_of};

/// ConfigMaps.
pub fn config_map(context: &DescribeContext, out: &mut Description, map: &Value) {
    out.metadata(map, true);
    out.raw("\nData\n====\n");
    for (key, value) in map.map("data").into_iter().flatten() {
        out.raw(&format!("{key}:\n----\n{}\n\n", value.as_str().unwrap_or_default()));
    }
    out.raw("\nBinaryData\n====\n");
    for (key, value) in map.map("binaryData").into_iter().flatten() {
        let size = STANDARD.decode(value.as_str().unwrap_or_default()).map_or(0, |bytes| bytes.len());
        out.raw(&format!("{key}: {size} bytes\n"));
    }
    out.raw("\n");
    context.events(out, map);
}

/// Secrets; their content is not shown.
pub fn secret(out: &mut Description, secret: &Value) {
    out.metadata(secret, true);
    out.raw(&format!("\nType:\t{}\n\nData\n====\n", secret.text("type")));
    for (key, value) in secret.map("data").into_iter().flatten() {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        if key == "token" && secret.text("type") == "kubernetes.io/service-account-token" {
            out.raw(&format!("{key}:\t{}\n", String::from_utf8_lossy(&bytes)));
        } else {
            out.raw(&format!("{key}:\t{} bytes\n", bytes.len()));
        }
    }
}

/// ServiceAccounts.
pub fn service_account(context: &DescribeContext, out: &mut Description, account: &Value) {
    out.metadata(account, true);
    for (label, path) in [("Image pull secrets", "imagePullSecrets")] {
        let names: Vec<&str> = account.list(path).iter().map(|secret| secret.text("name")).collect();
        if names.is_empty() {
            out.field(0, label, "<none>");
        }
        for (at, name) in names.iter().enumerate() {
            out.raw(&format!("{}\t{name}\n", if at == 0 { format!("{label}:") } else { String::new() }));
        }
    }
    context.events(out, account);
}

fn scope_help(scope: &str) -> &'static str {
    match scope {
        "Terminating" => {
            "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
        }
        "NotTerminating" => {
            "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
        }
        "BestEffort" => {
            "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
        }
        "NotBestEffort" => {
            "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
        }
        _ => "",
    }
}

/// ResourceQuotas.
pub fn resource_quota(out: &mut Description, quota: &Value) {
    out.field(0, "Name", name_of(quota));
    out.field(0, "Namespace", namespace_of(quota));
    let mut scopes: Vec<&str> = quota.list("spec.scopes").iter().filter_map(Value::as_str).collect();
    if !scopes.is_empty() {
        scopes.sort_unstable();
        out.field(0, "Scopes", &scopes.join(", "));
        for scope in scopes.iter().filter(|scope| !scope_help(scope).is_empty()) {
            out.line(0, &format!(" * {}", scope_help(scope)));
        }
    }
    out.raw("Resource\tUsed\tHard\n--------\t----\t----\n");
    quota_rows(out, quota, "");
}

fn quota_rows(out: &mut Description, quota: &Value, indent: &str) {
    for (name, hard) in quota.map("status.hard").into_iter().flatten() {
        let used = quota
            .map("status.used")
            .and_then(|used| used.get(name))
            .map_or("0".to_owned(), |used| scalar_text(Some(used)));
        out.raw(&format!("{indent}{name}\t{used}\t{}\n", scalar_text(Some(hard))));
    }
}

/// LimitRanges.
pub fn limit_range(out: &mut Description, range: &Value) {
    out.field(0, "Name", name_of(range));
    out.field(0, "Namespace", namespace_of(range));
    out.raw("Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    out.raw("----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    limit_rows(out, range, "");
}

fn limit_rows(out: &mut Description, range: &Value, indent: &str) {
    for item in range.list("spec.limits") {
        let fields = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
        let mut names: Vec<&String> =
            fields.iter().flat_map(|field| item.map(field).into_iter().flat_map(|map| map.keys())).collect();
        names.sort();
        names.dedup();
        for name in names {
            let cell = |field: &str| {
                item.map(field).and_then(|map| map.get(name)).map_or("-".to_owned(), |value| scalar_text(Some(value)))
            };
            let cells: Vec<String> = fields.iter().map(|field| cell(field)).collect();
            out.raw(&format!("{indent}{}\t{name}\t{}\n", item.text("type"), cells.join("\t")));
        }
    }
}

/// Namespaces.
pub fn namespace(context: &DescribeContext, out: &mut Description, namespace: &Value) {
    out.metadata(namespace, false);
    out.field(0, "Status", namespace.text("status.phase"));
    let conditions = namespace.list("status.conditions");
    if !conditions.is_empty() {
        out.raw("Conditions:\n  Type\tStatus\tLastTransitionTime\tReason\tMessage\n  ----\t------\t------------------\t------\t-------\n");
        for condition in conditions {
            out.raw(&format!(
                "  {}\t{}\t{}\t{}\t{}\n",
                condition.text("type"),
                condition.text("status"),
                super::description::format_time(condition.text("lastTransitionTime")),
                condition.text("reason"),
                condition.text("message")
            ));
        }
    }
    let name = name_of(namespace);
    namespace_quotas(out, &context.list_in_chunks(&format!("/api/v1/namespaces/{name}/resourcequotas"), "", ""));
    namespace_limits(out, &context.list_in_chunks(&format!("/api/v1/namespaces/{name}/limitranges"), "", ""));
}

fn namespace_quotas(out: &mut Description, quotas: &[Value]) {
    out.raw("\n");
    if quotas.is_empty() {
        out.raw("No resource quota.\n");
        return;
    }
    out.raw("Resource Quotas\n");
    for quota in quotas {
        out.raw(&format!("  Name:\t{}\n", name_of(quota)));
        let mut scopes: Vec<&str> = quota.list("spec.scopes").iter().filter_map(Value::as_str).collect();
        scopes.sort_unstable();
        if !scopes.is_empty() {
            out.raw(&format!("  Scopes:\t{}\n", scopes.join(", ")));
            for scope in scopes.iter().filter(|scope| !scope_help(scope).is_empty()) {
                out.raw(&format!("  * {}\n", scope_help(scope)));
            }
        }
        out.raw("  Resource\tUsed\tHard\n  --------\t---\t---\n");
        quota_rows(out, quota, "  ");
    }
}

fn namespace_limits(out: &mut Description, ranges: &[Value]) {
    out.raw("\n");
    if ranges.is_empty() {
        out.raw("No LimitRange resource.\n");
        return;
    }
    out.raw("Resource Limits\n Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    out.raw(" ----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    for range in ranges {
        limit_rows(out, range, " ");
    }
}
