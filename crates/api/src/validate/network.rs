//! Validation of NetworkPolicies, ServiceCIDRs and Ingresses beyond the rule tables. Stored invalid values of an
//! Ingress are tolerated.

use super::{ip_address, prelude::*, selector};

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Validates the peers of a network policy; stored networks are tolerated.
pub fn validate_policy_peers(spec: &FieldCursor, e: &mut ErrorList) {
    let known = stored_networks(&spec.old_cursor());
    let pods = spec.get("podSelector");
    let loose = selector::is_invalid_label_selector(pods.old);
    selector::check_label_selector(&pods, loose, e);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            rule.get("ports").items().for_each(|port| check_block("NetworkPolicyPort", &port, e));
            rule.get(peers).items().for_each(|peer| self::validate_peer(&peer, loose, &known, e));
        }
    }
}

fn stored_networks<'v>(spec: &FieldCursor<'v, '_>) -> Vec<&'v str> {
    let mut known = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            for peer in rule.get(peers).items() {
                let block = peer.get("ipBlock");
                known.push(block.text_at("cidr"));
                known.extend(block.get("except").texts());
            }
        }
    }
    known
}

fn validate_peer(at: &FieldCursor, lenient: bool, known: &[&str], e: &mut ErrorList) {
    let (pods, namespaces, block) = (at.get("podSelector"), at.get("namespaceSelector"), at.get("ipBlock"));
    selector::check_label_selector(&pods, lenient, e);
    selector::check_label_selector(&namespaces, lenient, e);
    if block.exists() {
        validate_ip_block(&block, known, e);
    }
    check_block("NetworkPolicyPeer", at, e);
}

fn validate_ip_block(at: &FieldCursor, known: &[&str], e: &mut ErrorList) {
    let cidr = at.get("cidr");
    if !cidr.require_value(e) {
        return;
    }
    cidr.check_cidr(e, known);
    if ip_address::lenient_cidr(cidr.text()).is_none() {
        return;
    }
    for except in at.get("except").items() {
        except.check_cidr(e, known);
        if ip_address::lenient_cidr(except.text()).is_some()
            && !ip_address::is_strict_subnet(except.text(), cidr.text())
        {
            except.invalid_text(e, "must be a strict subset of `cidr`");
        }
    }
}

/// Validates a ServiceCIDR update: a second family may be added.
pub fn validate_service_cidrs(spec: &FieldCursor, e: &mut ErrorList) {
    let list = spec.get("cidrs");
    if !spec.is_update() {
        return validate_cidrs(spec, e);
    }
    let old = list.old_cursor();
    let changed = |at: usize| list.texts().nth(at) != old.texts().nth(at);
    if old.len() == list.len() {
        (0..list.len()).filter(|at| changed(*at)).for_each(|at| list.element(at).invalid(e, IMMUTABLE));
    } else if old.len() == 1 && list.len() == 2 {
        if changed(0) {
            list.element(0).invalid(e, IMMUTABLE);
        }
        validate_cidrs(spec, e);
    } else {
        list.invalid(e, IMMUTABLE);
    }
}

fn validate_cidrs(spec: &FieldCursor, e: &mut ErrorList) {
    let list = spec.get("cidrs");
    if list.is_empty() {
        return list.required(e, "at least one CIDR required");
    }
    if list.len() > 2 {
        return list.invalid_as(
            e,
            render_bad_value("networking/v1.ServiceCIDRSpec", spec.value),
            "may only hold up to 2 values",
        );
    }
    list.items().for_each(|cidr| cidr.check_canonical_cidr(e));
    if list.len() == 2 && ip_address::is_dual_stack(list.texts()) == Some(false) {
        let message = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        list.invalid(e, message);
    }
}

pub fn validate_ingress_rules(list: &FieldCursor, e: &mut ErrorList) {
    let old = list.old_cursor();
    let is_wild = |rule: &FieldCursor| rule.text_at("host").contains('*');
    let any_wildcard = old.items().any(|rule| is_wild(&rule) && has_invalid_paths(&rule));
    for rule in list.items() {
        validate_host(&rule.get("host"), e);
        let http = rule.get("http");
        if http.exists() && !(is_wild(&rule) && any_wildcard) {
            check_block("IngressPaths", &http, e);
        }
    }
}

fn has_invalid_paths(rule: &FieldCursor) -> bool {
    let http = rule.get("http");
    http.exists() && violates_block("IngressPaths", &http)
}

fn validate_host(host: &FieldCursor, e: &mut ErrorList) {
    if host.is_empty() {
        return;
    }
    if ip_address::lenient_ip(host.text()).is_some() {
        host.invalid_text(e, "must be a DNS name, not an IP address");
    }
    host.check_format(e, host_format(host.text()));
}

fn host_format(host: &str) -> names::NameRule {
    if host.contains('*') { names::check_wildcard_subdomain } else { names::check_dns_subdomain }
}

pub fn validate_ingress_tls(list: &FieldCursor, e: &mut ErrorList) {
    let faulty = |name: &str| !name.is_empty() && !names::check_dns_subdomain(name).is_empty();
    let any_secret = list.old_cursor().items().any(|tls| faulty(tls.text_at("secretName")));
    for tls in list.items() {
        tls.get("hosts").items().for_each(|host| host.check_format(e, host_format(host.text())));
        if !any_secret {
            tls.get("secretName").check_optional_format(e, names::check_dns_subdomain);
        }
    }
}

/// Rejects ambiguous elements in an ingress path.
pub fn validate_plain_path(path: &FieldCursor, e: &mut ErrorList) {
    for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| path.text().contains(**part)) {
        path.invalid_text(e, format!("must not contain '{part}'"));
    }
    for end in ["/..", "/."].iter().filter(|end| path.text().ends_with(**end)) {
        path.invalid_text(e, format!("cannot end with '{end}'"));
    }
}

/// Requires the class annotation to equal the class field.
pub fn validate_class_annotation(ingress: &FieldCursor, e: &mut ErrorList) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let class = ingress.get("spec").get("ingressClassName").value;
    let noted = ingress.get("metadata").get("annotations").get(CLASS).value;
    if !noted.is_null() && !class.is_null() && noted != class {
        let place = ingress.get("annotations");
        place.get(CLASS).invalid_as(e, noted.clone(), "must match `ingressClassName` when both are specified");
    }
}
