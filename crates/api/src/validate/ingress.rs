//! Ingresses, as far as the tables cannot say what is right. What was wrong before stays allowed.

use super::{net, prelude::*};

pub(super) const FUNCTIONS: Functions = functions! { ingress_rules ingress_tls plain_path class_annotation };

fn ingress_rules(list: &At, e: &mut Errors) {
    let old = list.before();
    let is_wild = |rule: &At| rule.text_of("host").contains('*');
    let any_wildcard = old.items().any(|rule| is_wild(&rule) && has_faulty_paths(&rule));
    for rule in list.items() {
        host(&rule.get("host"), e);
        let http = rule.get("http");
        if http.exists() && !(is_wild(&rule) && any_wildcard) {
            rules::check("IngressPaths", &http, e);
        }
    }
}

fn has_faulty_paths(rule: &At) -> bool {
    let http = rule.get("http");
    http.exists() && rules::is_faulty("IngressPaths", &http)
}

fn host(host: &At, e: &mut Errors) {
    if host.is_empty() {
        return;
    }
    if net::lenient_ip(host.text()).is_some() {
        host.invalid_text(e, "must be a DNS name, not an IP address");
    }
    host.form(e, wild_or_plain(host.text()));
}

fn wild_or_plain(host: &str) -> names::Form {
    if host.contains('*') { names::wildcard } else { names::subdomain }
}

fn ingress_tls(list: &At, e: &mut Errors) {
    let faulty = |name: &str| !name.is_empty() && !names::subdomain(name).is_empty();
    let any_secret = list.before().items().any(|tls| faulty(tls.text_of("secretName")));
    for tls in list.items() {
        tls.get("hosts").items().for_each(|host| host.form(e, wild_or_plain(host.text())));
        if !any_secret {
            tls.get("secretName").optional_form(e, names::subdomain);
        }
    }
}

/// A path that is compared has nothing in it that could be read in two ways.
fn plain_path(path: &At, e: &mut Errors) {
    for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| path.text().contains(**part)) {
        path.invalid_text(e, format!("must not contain '{part}'"));
    }
    for end in ["/..", "/."].iter().filter(|end| path.text().ends_with(**end)) {
        path.invalid_text(e, format!("cannot end with '{end}'"));
    }
}

/// The class is named once, or twice the same.
fn class_annotation(ingress: &At, e: &mut Errors) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let class = ingress.get("spec").get("ingressClassName").value;
    let noted = ingress.get("metadata").get("annotations").get(CLASS).value;
    if !noted.is_null() && !class.is_null() && noted != class {
        let place = ingress.get("annotations");
        place.get(CLASS).invalid_as(e, noted.clone(), "must match `ingressClassName` when both are specified");
    }
}
