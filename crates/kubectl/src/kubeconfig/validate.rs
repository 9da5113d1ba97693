//! Checks of the cluster and user that a command uses.

use api::{Map, Value, json::go_quote};

use super::text_of;
use crate::files::os_error;

/// The faults of a cluster.
pub fn check_cluster(name: &str, cluster: &Map) -> Vec<String> {
    let mut faults = Vec::new();
    if text_of(cluster, "server").is_empty() {
        faults.push(match name {
            "" => "default cluster has no server defined".to_owned(),
            name => format!("no server found for cluster {}", go_quote(name)),
        });
    }
    let authority = text_of(cluster, "certificate-authority");
    if !authority.is_empty() && !text_of(cluster, "certificate-authority-data").is_empty() {
        faults.push(format!(
            "certificate-authority-data and certificate-authority are both specified for {name}. \
             certificate-authority-data will override."
        ));
    }
    check_readable("certificate-authority", authority, name, &mut faults);
    faults
}

fn check_readable(what: &str, path: &str, name: &str, faults: &mut Vec<String>) {
    if path.is_empty() {
        return;
    }
    if let Err(error) = std::fs::File::open(path) {
        faults.push(format!("unable to read {what} {path} for {name} due to open {path}: {}", os_error(&error)));
    }
}

/// The faults of a user.
pub fn check_user(name: &str, user: &Map) -> Vec<String> {
    let has = |field: &str| !text_of(user, field).is_empty();
    let mut faults = Vec::new();
    let mut methods = Vec::new();
    if has("token") {
        methods.push("token");
    }
    if has("username") || has("password") {
        methods.push("basicAuth");
    }
    if has("client-certificate") || has("client-certificate-data") {
        check_certificate(name, user, &mut faults);
    }
    if let Some(exec) = user.get("exec").and_then(Value::as_object) {
        check_exec(name, user, exec, &mut faults);
    }
    if methods.len() > 1 {
        faults.push(format!(
            "more than one authentication method found for {name}; found [{}], only one is allowed",
            methods.join(" ")
        ));
    }
    let present = |field: &str| match user.get(field) {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    };
    if (has("as-uid") || present("as-groups") || present("as-user-extra")) && !has("as") {
        faults.push(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
    }
    faults
}

fn check_certificate(name: &str, user: &Map, faults: &mut Vec<String>) {
    let has = |field: &str| !text_of(user, field).is_empty();
    if has("client-certificate") && has("client-certificate-data") {
        faults.push(format!(
            "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
        ));
    }
    if has("client-key") && has("client-key-data") {
        faults.push(format!(
            "client-key-data and client-key are both specified for {name}; client-key-data will override"
        ));
    }
    if !has("client-key") && !has("client-key-data") {
        faults.push(format!(
            "client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
        ));
    }
    check_readable("client-cert", text_of(user, "client-certificate"), name, faults);
    check_readable("client-key", text_of(user, "client-key"), name, faults);
}

fn check_exec(name: &str, user: &Map, exec: &Map, faults: &mut Vec<String>) {
    if user.get("auth-provider").is_some_and(|provider| !provider.is_null()) {
        faults.push(format!("authProvider cannot be provided in combination with an exec plugin for {name}"));
    }
    for (field, what) in [("command", "command"), ("apiVersion", "apiVersion")] {
        if text_of(exec, field).is_empty() {
            faults.push(format!("{what} must be specified for {name} to use exec authentication plugin"));
        }
    }
    let names = exec.get("env").and_then(Value::as_array).into_iter().flatten();
    for _ in names.filter(|variable| variable.get("name").and_then(Value::as_str).unwrap_or_default().is_empty()) {
        faults.push(format!("env variable name must be specified for {name} to use exec authentication plugin"));
    }
    let v1 = text_of(exec, "apiVersion").ends_with("/v1");
    match text_of(exec, "interactiveMode") {
        "" if v1 => {
            faults.push(format!("interactiveMode must be specified for {name} to use exec authentication plugin"))
        }
        "" | "Never" | "IfAvailable" | "Always" => {}
        other => faults.push(format!("invalid interactiveMode for {name}: {}", go_quote(other))),
    }
}
