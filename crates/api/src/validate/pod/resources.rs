//! Validation of resource requirements: requests, limits, claims.

use super::{MIRROR_ANNOTATION, enclosing_pod_spec, is_pod_spec};
use crate::validate::prelude::*;
use crate::{quantity::Quantity, resource_list, validate::resource_name as resource};

/// A check of a resource name at its path.
type NameCheck = fn(&str, &FieldCursor, &mut ErrorList);

/// Validates the resources of a container.
pub fn validate_container_resources(at: &FieldCursor, e: &mut ErrorList) {
    if at.exists() {
        check_requirements(at, resource::validate_container_resource_name, e);
    }
}

/// Validates the overhead, which has limits only.
pub fn validate_overhead(at: &FieldCursor, e: &mut ErrorList) {
    let limits = at.child_as("limits", at.value);
    let mut flags = ResourceFlags::default();
    for (name, amount) in limits.entries() {
        check_limit(name, &amount, resource::validate_container_resource_name, &mut flags, e);
    }
    flags.check_huge_pages(at, e);
}

/// Properties of the resources seen so far.
#[derive(Default)]
struct ResourceFlags {
    compute: bool,
    huge: bool,
}

impl ResourceFlags {
    fn record_resource(&mut self, name: &str) {
        self.compute |= name == "cpu" || name == "memory";
        self.huge |= resource::is_huge_page(name);
    }

    fn check_huge_pages(&self, at: &FieldCursor, e: &mut ErrorList) {
        if self.huge && !self.compute {
            at.forbidden(e, "HugePages require cpu or memory");
        }
    }
}

fn check_limit(name: &str, at: &FieldCursor, check: NameCheck, flags: &mut ResourceFlags, e: &mut ErrorList) {
    check(name, at, e);
    validate_quantity_value(name, at, e);
    flags.record_resource(name);
    check_huge_page_multiple(name, at, e);
}

/// Validates the quantity of a resource.
pub(in crate::validate) fn validate_quantity_value(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    if at.text().starts_with('-') && at.quantity_sign() < 0 {
        at.invalid_text(e, "must be greater than or equal to 0");
    }
    if resource::is_integer_resource(name) && at.quantity().is_some_and(|quantity| quantity.millis() % 1000 != 0) {
        at.invalid_text(e, "must be an integer");
    }
}

fn check_huge_page_multiple(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    let Some(size) = name.strip_prefix("hugepages-").map(Quantity::parse) else { return };
    let amount = at.quantity().map_or(0, Quantity::value);
    let divides = size.is_some_and(|size| size.value() > 0 && size.millis() % 1000 == 0 && amount % size.value() == 0);
    if !divides {
        at.invalid_text(e, format!("{} is not positive integer multiple of {name}", at.text()));
    }
}

fn check_requirements(at: &FieldCursor, check: NameCheck, e: &mut ErrorList) {
    let (limits, requests) = (at.get("limits"), at.get("requests"));
    let mut flags = ResourceFlags::default();
    for (name, quantity) in limits.entries() {
        check_limit(name, &quantity, check, &mut flags, e);
    }
    for (name, quantity) in requests.entries() {
        check(name, &quantity, e);
        validate_quantity_value(name, &quantity, e);
        check_request_within_limit(name, &quantity, &limits, &requests, e);
        flags.record_resource(name);
        check_huge_page_multiple(name, &quantity, e);
    }
    flags.check_huge_pages(at, e);
    check_claim_names(&at.get("claims"), e);
}

/// Requires a request to be at most its limit, and equal to it without overcommitment.
fn check_request_within_limit(
    name: &str,
    request: &FieldCursor,
    limits: &FieldCursor,
    requests: &FieldCursor,
    e: &mut ErrorList,
) {
    let limit = limits.get(name);
    let overcommits = resource::is_overcommit_allowed(name);
    if !limit.exists() {
        if !overcommits {
            limits.required(e, "Limit must be set for non overcommitable resources");
        }
        return;
    }
    let (Some(asked), Some(allowed)) = (request.quantity(), limit.quantity()) else { return };
    let order = asked.partial_cmp(&allowed);
    if order != Some(std::cmp::Ordering::Equal) && !overcommits {
        requests.invalid_as(e, request.text(), format!("must be equal to {name} limit of {}", limit.text()));
    } else if order == Some(std::cmp::Ordering::Greater) {
        let message = format!("must be less than or equal to {name} limit of {}", limit.text());
        requests.invalid_as(e, request.text(), message);
    }
}

fn check_claim_names(list: &FieldCursor, e: &mut ErrorList) {
    if list.is_empty() {
        return;
    }
    let claims = enclosing_pod_spec(list).get("resourceClaims");
    let known: Vec<&str> = claims.items().map(|claim| claim.text_at("name")).filter(|name| !name.is_empty()).collect();
    let mut seen: Vec<String> = Vec::new();
    for claim in list.items() {
        let (name, request) = (claim.get("name").text(), claim.get("request"));
        if name.is_empty() {
            claim.required(e, "");
            continue;
        }
        if seen.iter().any(|key| key == name) {
            claim.duplicate(e, name);
        } else {
            request.check_optional_format(e, names::check_dns_label);
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{}", request.text()) };
            if seen.contains(&key) {
                claim.duplicate(e, key.as_str());
            } else if request.is_empty() && seen.iter().any(|key| key.split('/').next() == Some(name)) {
                claim.duplicate(e, name);
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut sorted = known.to_vec();
            sorted.sort_unstable();
            let tail = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", sorted.join(", ")) };
            let message = format!("must be one of the names in pod.spec.resourceClaims{tail}");
            claim.push_error(e, FieldErrorType::NotFound(name.into()), message);
        }
    }
}

/// Validates the resource claims of a pod.
pub fn validate_pod_claims(list: &FieldCursor, e: &mut ErrorList) {
    let spec = list.ancestor(1);
    let mirror =
        is_pod_spec(spec) && spec.ancestor(1).get("metadata").get("annotations").get(MIRROR_ANNOTATION).exists();
    let mut seen = Vec::new();
    for claim in list.items() {
        if mirror {
            e.push(FieldError::forbidden("", "static pods do not support resource claims"));
            continue;
        }
        let name = claim.get("name");
        if name.is_empty() {
            name.required(e, "");
        } else if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        } else {
            name.check_format(e, names::check_dns_label);
            seen.push(name.text());
        }
        check_block("PodResourceClaim", &claim, e);
    }
}

/// Validates pod-level resources.
pub fn validate_pod_resources(spec: &FieldCursor, e: &mut ErrorList) {
    let at = spec.get("resources");
    if !at.exists() {
        return;
    }
    if spec.get("os").text_at("name") == "windows" {
        return at.forbidden(e, "may not be set for a windows pod");
    }
    at.get("claims").forbid_value(e, "claims may not be set for Resources at pod-level");
    check_requirements(&at, resource::validate_pod_resource_name, e);
    check_pod_level_consistency(spec, &at, e);
}

/// Requires pod-level resources to cover the containers'.
fn check_pod_level_consistency(spec: &FieldCursor, at: &FieldCursor, e: &mut ErrorList) {
    for kind in ["requests", "limits"] {
        let (amounts, parts) = (at.get(kind), resource_list::container_resources(spec.value, kind));
        for (name, whole) in amounts.entries().filter(|(name, _)| kind == "requests" || resource::is_huge_page(name)) {
            if let (Some(sum), Some(quantity)) = (parts.get(name), whole.quantity())
                && quantity < *sum
            {
                let message = format!("must be greater than or equal to aggregate container {kind} of {sum}");
                whole.invalid_text(e, message);
            }
        }
    }
    let limits = at.get("limits");
    let places = at.get("containers");
    for (index, container) in spec.get("containers").items().enumerate() {
        let place = places.element(index);
        for (name, limit) in container.get("resources").get("limits").entries() {
            let whole = limits.get(name);
            if let (Some(part), Some(quantity)) = (limit.quantity(), whole.quantity())
                && part > quantity
            {
                let message = format!("must be less than or equal to pod limits of {}", whole.text());
                place.entry(name).get("limits").invalid_as(e, limit.text(), message);
            }
        }
    }
}
