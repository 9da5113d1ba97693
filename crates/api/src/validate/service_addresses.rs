//! Validation of cluster IPs and IP families of Services.

use super::{ip_address, prelude::*};

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Whether a service is headless.
pub(super) fn is_headless(spec: &FieldCursor) -> bool {
    let ips = spec.get("clusterIPs");
    ips.len() == 1 && ips.texts().next() == Some("None")
}

/// Validates cluster IPs and IP families.
pub fn validate_addresses(spec: &FieldCursor, e: &mut ErrorList) {
    if spec.get("type").text() == "ExternalName" {
        return;
    }
    let (ip, ips, families) = (spec.get("clusterIP"), spec.get("clusterIPs"), spec.get("ipFamilies"));
    if !ip.is_empty() {
        if ips.is_empty() {
            ips.required(e, "");
        } else if ips.texts().next() != Some(ip.text()) {
            ips.invalid(e, "first value must match `clusterIP`");
        }
    } else if !ips.is_empty() {
        ips.invalid(e, "must be empty when `clusterIP` is not specified");
    }
    families.items().for_each(|family| family.require_one_of(e, FAMILIES));
    families.for_each_duplicate(|family| family.text(), |family, text| family.duplicate(e, text));
    spec.get("ipFamilyPolicy").require_one_of(e, POLICIES);
    let old = ips.old_cursor();
    let before: Vec<&str> = old.texts().collect();
    let mut wrong = false;
    for (at, ip) in ips.items().enumerate() {
        if at == 0 && ip.text() == "None" {
            if ips.len() > 1 {
                wrong = true;
                ips.invalid(e, "'None' must be the first and only value");
            }
            continue;
        }
        wrong |= !ip.check_ip(e, &before);
    }
    if ips.len() > 2 {
        ips.invalid(e, "may only hold up to 2 values");
    }
    if wrong {
        return;
    }
    if ips.len() > 1 && ip_address::is_dual_stack(ips.texts()) != Some(true) {
        ips.invalid(e, "may specify no more than one IP for each IP family");
    }
    if !is_headless(spec) {
        for (at, (ip, family)) in ips.items().zip(families.texts()).enumerate() {
            let six = ip_address::is_ipv6(ip.text());
            if family == "IPv4" && six || family == "IPv6" && !six {
                ip.invalid_text(e, format!("expected an {family} value as indicated by `ipFamilies[{at}]`"));
            }
        }
    }
}

/// Validates updates of cluster IPs and IP families.
pub fn validate_address_change(spec: &FieldCursor, e: &mut ErrorList) {
    let old = &spec.old_cursor();
    let external = |spec: &FieldCursor| spec.get("type").text() == "ExternalName";
    if external(spec) || external(old) {
        return;
    }
    if !(is_headless(spec) && is_headless(old)) {
        validate_changed_list(spec, old, "clusterIPs", "clusterIP", e);
    }
    if !is_headless(spec) && !is_headless(old) {
        validate_changed_list(spec, old, "ipFamilies", "ipFamily", e);
    }
}

fn validate_changed_list(spec: &FieldCursor, old: &FieldCursor, field: &str, what: &str, e: &mut ErrorList) {
    const FIXED: &str = "may not change once set";
    let (new, before) = (spec.get(field), old.get(field));
    let first_changed = || new.texts().next() != before.texts().next();
    if before.len() == new.len() {
        for (at, text) in before.texts().enumerate() {
            if new.texts().nth(at) != Some(text) {
                let place = if field == "clusterIPs" { at } else { 0 };
                new.element(place).invalid_as(e, new.value.clone(), FIXED);
            }
        }
    } else if before.len() > new.len() {
        if spec.get("clusterIPs").is_empty() {
            new.element(0).invalid_as(e, new.value.clone(), format!("primary {what} can not be unset"));
        }
        if !new.is_empty() && first_changed() {
            new.element(0).invalid_as(e, spec.get("clusterIPs").value.clone(), FIXED);
        }
        if new.len() == 1 && spec.get("ipFamilyPolicy").text() != "SingleStack" {
            let message = format!("must be set to 'SingleStack' when releasing the secondary {what}");
            spec.get("ipFamilyPolicy").invalid(e, message);
        }
    } else if !before.is_empty() && first_changed() {
        new.element(0).invalid_as(e, spec.get("clusterIPs").value.clone(), FIXED);
    }
}
