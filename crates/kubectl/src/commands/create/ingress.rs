//! Generator of ingresses.

use api::Value;
use serde_json::json;

use super::Generator;
use crate::errors::CommandResult;

/// `create ingress`
pub fn ingress(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (rules, backend, annotations) =
        (flags.strings("rule"), flags.string("default-backend"), flags.strings("annotation"));
    check_arguments(&rules, &backend, &annotations)?;
    let mut metadata = generator.metadata();
    for annotation in &annotations {
        let (key, value) = annotation.split_once('=').unwrap_or((annotation, ""));
        metadata["annotations"][key] = value.into();
    }
    let mut spec = json!({});
    let class = flags.string("class");
    if !class.is_empty() {
        spec["ingressClassName"] = class.into();
    }
    if !backend.is_empty() {
        spec["defaultBackend"] = backend_of(&backend);
    }
    let tls = tls_rules(&rules);
    if !tls.is_empty() {
        spec["tls"] = tls.into();
    }
    let paths = path_rules(&rules);
    if !paths.is_empty() {
        spec["rules"] = paths.into();
    }
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec});
    generator.finish(object, "ingresses", true, "failed to create ingress: ")
}

fn check_arguments(rules: &[String], backend: &str, annotations: &[String]) -> CommandResult {
    if backend.is_empty() && rules.is_empty() {
        crate::bail!(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all \
             traffic) or a list of rules (which catch specific paths)"
        );
    }
    for rule in rules {
        if !is_rule(rule) {
            crate::bail!("rule {rule} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]");
        }
    }
    for annotation in annotations {
        if !annotation.contains('=') {
            crate::bail!("annotation {annotation} is invalid and should be in format key=[value]");
        }
    }
    if !backend.is_empty() && backend.split(':').count() != 2 {
        crate::bail!("default-backend should be in format servicename:serviceport");
    }
    Ok(())
}

/// Whether a rule has the form `host/path=service:port`.
fn is_rule(rule: &str) -> bool {
    let Some((host, rest)) = rule.split_once('/') else { return false };
    let is_host = host.chars().all(|c| c.is_ascii_alphanumeric() || "_*-.".contains(c));
    let word = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).count();
    let service = |text: &str| {
        let length = word(text);
        length > 0 && text[length..].starts_with(':') && word(&text[length + 1..]) > 0
    };
    is_host && rest.match_indices('=').any(|(at, _)| service(&rest[at + 1..]))
}

fn backend_of(service: &str) -> Value {
    let mut parts = service.split(':');
    let (name, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let port = port.parse::<i64>().map_or_else(|_| json!({"name": port}), |number| json!({"number": number}));
    json!({"service": {"name": name, "port": port}})
}

fn tls_rules(rules: &[String]) -> Vec<Value> {
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    let mut hosts: Vec<String> = Vec::new();
    for rule in rules {
        let parts: Vec<&str> = rule.split(',').collect();
        let [_, tls] = parts.as_slice() else { continue };
        let host = rule.split('/').next().unwrap_or_default().to_owned();
        let secret = tls.split('=').nth(1).unwrap_or_default().to_owned();
        if hosts.contains(&host) {
            continue;
        }
        hosts.push(host.clone());
        if let Some((_, known)) = entries.iter_mut().find(|(known, _)| *known == secret) {
            known.push(host);
        } else if !host.is_empty() || !secret.is_empty() {
            entries.push((secret, if host.is_empty() { Vec::new() } else { vec![host] }));
        }
    }
    let entry = |(secret, hosts): (String, Vec<String>)| {
        let mut entry = json!({});
        if !hosts.is_empty() {
            entry["hosts"] = hosts.into();
        }
        if !secret.is_empty() {
            entry["secretName"] = secret.into();
        }
        entry
    };
    entries.into_iter().map(entry).collect()
}

fn path_rules(rules: &[String]) -> Vec<Value> {
    let mut out: Vec<(String, Vec<Value>)> = Vec::new();
    for rule in rules {
        let bare = rule.split(',').next().unwrap_or(rule);
        let (host, rest) = bare.split_once('/').unwrap_or((bare, ""));
        let mut parts = rest.split('=');
        let mut path = format!("/{}", parts.next().unwrap_or_default());
        let backend = backend_of(parts.next().unwrap_or_default());
        let mut kind = "Exact";
        if path.ends_with('*') {
            path.pop();
            kind = "Prefix";
        }
        let entry = json!({"path": path, "pathType": kind, "backend": backend});
        match out.iter_mut().find(|(known, _)| known == host) {
            Some((_, paths)) => paths.push(entry),
            None => out.push((host.to_owned(), vec![entry])),
        }
    }
    let rule = |(host, paths): (String, Vec<Value>)| {
        let mut rule = json!({"http": {"paths": paths}});
        if !host.is_empty() {
            rule["host"] = host.into();
        }
        rule
    };
    out.into_iter().map(rule).collect()
}
