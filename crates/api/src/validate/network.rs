//! Network policies and ranges of addresses, as far as the tables cannot say what is right.

use super::{net, prelude::*, selector};

pub(super) const FUNCTIONS: Functions = functions! { policy_peers service_cidrs };

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The faults of what a network policy selects; networks that it had stay allowed.
fn policy_peers(spec: &At, e: &mut Errors) {
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
fn service_cidrs(spec: &At, e: &mut Errors) {
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
