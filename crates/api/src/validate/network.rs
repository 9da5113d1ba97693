//! Network policies, ranges of addresses and ingresses, as far as the tables cannot say what is right. What was wrong in an
//! ingress before stays allowed.

use super::{net, prelude::*, selector};

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The faults of what a network policy selects; networks that it had stay allowed.
pub fn policy_peers(spec: &At, e: &mut Errors) {
    let known = known_networks(&spec.before());
    let pods = spec.get("podSelector");
    let loose = selector::is_faulty(pods.old);
    selector::check(&pods, loose, e);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            rule.get("ports").items().for_each(|port| rules::check("NetworkPolicyPort", &port, e));
            rule.get(peers).items().for_each(|peer| self::peer(&peer, loose, &known, e));
        }
    }
}

fn known_networks<'v>(spec: &At<'v, '_>) -> Vec<&'v str> {
    let mut known = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            for peer in rule.get(peers).items() {
                let block = peer.get("ipBlock");
                known.push(block.text_of("cidr"));
                known.extend(block.get("except").texts());
            }
        }
    }
    known
}

fn peer(at: &At, lenient: bool, known: &[&str], e: &mut Errors) {
    let (pods, namespaces, block) = (at.get("podSelector"), at.get("namespaceSelector"), at.get("ipBlock"));
    selector::check(&pods, lenient, e);
    selector::check(&namespaces, lenient, e);
    if block.exists() {
        ip_block(&block, known, e);
    }
    rules::check("NetworkPolicyPeer", at, e);
}

fn ip_block(at: &At, known: &[&str], e: &mut Errors) {
    let cidr = at.get("cidr");
    if !cidr.require(e) {
        return;
    }
    cidr.cidr(e, known);
    if net::lenient_cidr(cidr.text()).is_none() {
        return;
    }
    for except in at.get("except").items() {
        except.cidr(e, known);
        if net::lenient_cidr(except.text()).is_some() && !net::strictly_inside(except.text(), cidr.text()) {
            except.invalid_text(e, "must be a strict subset of `cidr`");
        }
    }
}

/// A range of addresses for services may get a second family, and else stays.
pub fn service_cidrs(spec: &At, e: &mut Errors) {
    let list = spec.get("cidrs");
    if !spec.is_change() {
        return cidrs(spec, e);
    }
    let old = list.before();
    let changed = |at: usize| list.texts().nth(at) != old.texts().nth(at);
    if old.len() == list.len() {
        (0..list.len()).filter(|at| changed(*at)).for_each(|at| list.index(at).invalid(e, IMMUTABLE));
    } else if old.len() == 1 && list.len() == 2 {
        if changed(0) {
            list.index(0).invalid(e, IMMUTABLE);
        }
        cidrs(spec, e);
    } else {
        list.invalid(e, IMMUTABLE);
    }
}

fn cidrs(spec: &At, e: &mut Errors) {
    let list = spec.get("cidrs");
    if list.is_empty() {
        return list.required(e, "at least one CIDR required");
    }
    if list.len() > 2 {
        return list.invalid_as(
            e,
            Bad::of("networking/v1.ServiceCIDRSpec", spec.value),
            "may only hold up to 2 values",
        );
    }
    list.items().for_each(|cidr| cidr.canonical_cidr(e));
    if list.len() == 2 && net::dual_stack(list.texts()) == Some(false) {
        let message = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        list.invalid(e, message);
    }
}

pub fn ingress_rules(list: &At, e: &mut Errors) {
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

pub fn ingress_tls(list: &At, e: &mut Errors) {
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
pub fn plain_path(path: &At, e: &mut Errors) {
    for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| path.text().contains(**part)) {
        path.invalid_text(e, format!("must not contain '{part}'"));
    }
    for end in ["/..", "/."].iter().filter(|end| path.text().ends_with(**end)) {
        path.invalid_text(e, format!("cannot end with '{end}'"));
    }
}

/// The class is named once, or twice the same.
pub fn class_annotation(ingress: &At, e: &mut Errors) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let class = ingress.get("spec").get("ingressClassName").value;
    let noted = ingress.get("metadata").get("annotations").get(CLASS).value;
    if !noted.is_null() && !class.is_null() && noted != class {
        let place = ingress.get("annotations");
        place.get(CLASS).invalid_as(e, noted.clone(), "must match `ingressClassName` when both are specified");
    }
}
