//! Validation of ingresses and their classes.

use super::{Errors, at::At, job_policy::domain_path, names, net, service};
use crate::Value;

const CLASS: &str = "kubernetes.io/ingress.class";

/// The faults of an ingress; what was wrong before stays allowed.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !backend.exists() {
        spec.invalid_as(e, rules.value.clone(), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.exists() {
        self::backend(&backend, e);
    }
    let any_wildcard = old.is_some_and(faulty_wildcard);
    rules.items().for_each(|rule| self::rule(&rule, any_wildcard, e));
    let any_secret = old.is_some_and(|old| {
        let spec = old.get("spec");
        spec.get("tls").items().any(|tls| {
            let name = tls.get("secretName").text();
            !name.is_empty() && !names::subdomain(name).is_empty()
        })
    });
    spec.get("tls").items().for_each(|tls| self::tls(&tls, any_secret, e));
    let class = spec.get("ingressClassName");
    if class.exists() {
        class.form(e, names::subdomain);
    }
    let noted = new.get("metadata").get("annotations").get(CLASS).value;
    if old.is_none() && !noted.is_null() && class.exists() && noted != class.value {
        let place = new.get("annotations");
        place.get(CLASS).invalid_as(e, noted.clone(), "must match `ingressClassName` when both are specified");
    }
}

fn faulty_wildcard(old: &At) -> bool {
    let spec = old.get("spec");
    spec.get("rules").items().filter(|rule| rule.get("host").text().contains('*')).any(|rule| {
        let mut faults = Vec::new();
        paths(&rule.get("http"), &mut faults);
        !faults.is_empty()
    })
}

fn rule(at: &At, any_wildcard: bool, e: &mut Errors) {
    let host = at.get("host");
    let wildcard = host.text().contains('*');
    if !host.is_empty() {
        if net::lenient_ip(host.text()).is_some() {
            host.invalid_text(e, "must be a DNS name, not an IP address");
        }
        host.form(e, if wildcard { names::wildcard } else { names::subdomain });
    }
    if !(wildcard && any_wildcard) {
        paths(&at.get("http"), e);
    }
}

fn paths(http: &At, e: &mut Errors) {
    if !http.exists() {
        return;
    }
    let list = http.get("paths");
    list.require(e);
    for item in list.items() {
        path(&item, e);
    }
}

fn path(at: &At, e: &mut Errors) {
    let (kind, path) = (at.get("pathType"), at.get("path"));
    if !kind.exists() {
        return kind.required(e, "pathType must be specified");
    }
    let absolute = path.text().starts_with('/');
    match kind.text() {
        "Exact" | "Prefix" => {
            if !absolute {
                path.invalid_text(e, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| path.text().contains(**part)) {
                path.invalid_text(e, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| path.text().ends_with(**end)) {
                path.invalid_text(e, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !absolute {
                path.invalid_text(e, "must be an absolute path");
            }
        }
        _ => kind.unsupported(e, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&at.get("backend"), e);
}

fn backend(at: &At, e: &mut Errors) {
    let (service, resource) = (at.get("service"), at.get("resource"));
    match (service.exists(), resource.exists()) {
        (true, true) => at.invalid_as(e, "", "cannot set both resource and service backends"),
        (false, true) => local_reference(&resource, e),
        (false, false) => at.invalid_as(e, "", "resource or service backend is required"),
        (true, false) => {
            service.get("name").required_form(e, names::label);
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (!name.is_empty(), number.int() != 0) {
                (true, true) => at.invalid_as(e, "", "cannot set both port name & port number"),
                (true, false) => name.form(e, names::port),
                (false, true) => number.port_number(e),
                (false, false) => at.required(e, "port name or number is required"),
            }
        }
    }
}

fn local_reference(at: &At, e: &mut Errors) {
    if at.get("apiGroup").exists() {
        at.get("apiGroup").form(e, names::subdomain);
    }
    at.get("kind").required_form(e, names::path_segment);
    at.get("name").required_form(e, names::path_segment);
}

fn tls(at: &At, any_secret: bool, e: &mut Errors) {
    for host in at.get("hosts").items() {
        host.form(e, if host.text().contains('*') { names::wildcard } else { names::subdomain });
    }
    if !any_secret {
        at.get("secretName").optional_form(e, names::subdomain);
    }
}

/// The faults of the status of an ingress.
pub(super) fn status(new: &At, old: &At, e: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (balancer, before) = (status.get("loadBalancer"), before.get("loadBalancer"));
    service::ingress_points(&balancer.get("ingress"), &before.get("ingress"), false, e);
}

/// What is particular to a changed class.
pub(super) fn class_change(new: &At, old: &At, e: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    if spec.get("controller").text() != before.get("controller").text() {
        spec.get("controller").invalid_text(e, super::at::IMMUTABLE);
    }
}

/// The faults of a class of ingresses.
pub(super) fn class(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let controller = spec.get("controller");
    if controller.text().len() > 250 {
        controller.too_long(e, 250);
    }
    domain_path(&controller, e);
    let parameters = spec.get("parameters");
    if !parameters.exists() {
        return;
    }
    local_reference(&parameters, e);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    if !scope.exists() {
        return scope.required(e, "");
    }
    match scope.text() {
        "Namespace" if !namespace.exists() => namespace.required(e, "`parameters.scope` is set to 'Namespace'"),
        "Namespace" => namespace.form(e, names::label),
        "Cluster" => {
            if namespace.value != &Value::Null {
                namespace.forbidden(e, "`parameters.scope` is set to 'Cluster'");
            }
        }
        _ => scope.unsupported(e, &["Cluster", "Namespace"]),
    }
}
