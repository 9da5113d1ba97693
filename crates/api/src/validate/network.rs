//! Validation of network policies, and of the addresses of services as objects.

use super::{Errors, at::At, names, net, selector};
/// The faults of a network policy; networks that it had stay allowed.
pub(super) fn policy(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let known = old.map(known_networks).unwrap_or_default();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let lenient = old.is_some_and(|old| selector::is_faulty(old.get("spec").get("podSelector").value));
    selector::lenient(&spec.get("podSelector"), lenient, e);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            rule.get("ports").items().for_each(|port| self::port(&port, e));
            rule.get(peers).items().for_each(|peer| self::peer(&peer, lenient, &known, e));
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        return types.invalid(e, "may not specify more than two policyTypes");
    }
    types.items().for_each(|kind| kind.one_of(e, &["Ingress", "Egress"]));
}

fn known_networks(old: &At) -> Vec<String> {
    let spec = old.get("spec");
    let mut known = Vec::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            for peer in rule.get(peers).items() {
                let block = peer.get("ipBlock");
                known.push(block.get("cidr").text().to_owned());
                known.extend(block.get("except").texts().map(str::to_owned));
            }
        }
    }
    known
}

fn port(at: &At, e: &mut Errors) {
    let (port, end) = (at.get("port"), at.get("endPort"));
    at.get("protocol").one_of(e, &["TCP", "UDP", "SCTP"]);
    if !port.exists() {
        if end.exists() {
            end.invalid(e, "may not be specified when `port` is not specified");
        }
    } else if port.value.is_string() {
        if end.exists() {
            end.invalid(e, "may not be specified when `port` is non-numeric");
        }
        port.form(e, names::port);
    } else {
        port.port_number(e);
        if end.exists() {
            if end.int() < port.int() {
                end.invalid_as(e, port.int(), "must be greater than or equal to `port`");
            }
            end.port_number(e);
        }
    }
}

fn peer(at: &At, lenient: bool, known: &[&str], e: &mut Errors) {
    let (pods, namespaces, block) = (at.get("podSelector"), at.get("namespaceSelector"), at.get("ipBlock"));
    selector::lenient(&pods, lenient, e);
    selector::lenient(&namespaces, lenient, e);
    if block.exists() {
        ip_block(&block, known, e);
    }
    let count = [&pods, &namespaces, &block].into_iter().filter(|kind| kind.exists()).count();
    if count == 0 {
        at.required(e, "must specify a peer");
    } else if count > 1 && block.exists() {
        at.forbidden(e, "may not specify both ipBlock and another peer");
    }
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

/// The faults of an address as an object.
pub(super) fn address(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let parent = spec.get("parentRef");
    if let Some(old) = old {
        return parent.unchanged_internal(e, &old.get("spec").get("parentRef"), "networking/v1.ParentReference");
    }
    if !parent.exists() {
        return parent.required(e, "");
    }
    parent.get("group").optional_form(e, names::subdomain);
    parent.get("resource").required_form(e, names::path_segment);
    parent.get("name").required_form(e, names::path_segment);
    parent.get("namespace").optional_form(e, names::path_segment);
}

/// The faults of a range of addresses for services.
pub(super) fn service_cidr(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let list = spec.get("cidrs");
    let Some(old) = old else { return cidrs(&spec, e) };
    let before: Vec<String> = old.get("spec").get("cidrs").texts().map(str::to_owned).collect();
    let changed = |at: usize| list.texts().nth(at) != before.get(at).map(String::as_str);
    if before.len() == list.len() {
        (0..list.len()).filter(|at| changed(*at)).for_each(|at| list.index(at).invalid(e, super::at::IMMUTABLE));
    } else if before.len() == 1 && list.len() == 2 {
        if changed(0) {
            list.index(0).invalid(e, super::at::IMMUTABLE);
        }
        cidrs(&spec, e);
    } else {
        list.invalid(e, super::at::IMMUTABLE);
    }
}

fn cidrs(spec: &At, e: &mut Errors) {
    let list = spec.get("cidrs");
    if list.is_empty() {
        return list.required(e, "at least one CIDR required");
    }
    if list.len() > 2 {
        let shown = super::render::internal("networking/v1.ServiceCIDRSpec", spec.value);
        return list.invalid_as(e, super::error::Bad::Shown(shown), "may only hold up to 2 values");
    }
    list.items().for_each(|cidr| cidr.canonical_cidr(e));
    if list.len() == 2 && net::dual_stack(list.texts()) == Some(false) {
        let message = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        list.invalid(e, message);
    }
}
