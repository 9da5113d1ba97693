//! Validation of what containers and pods ask for: requests, limits, claims.

use super::{MIRROR, is_pod, spec_of};
use crate::validate::prelude::*;
use crate::{amounts, quantity::Quantity, validate::resource_name as resource};

/// A check of the name of a resource at its place.
type NameCheck = fn(&str, &At, &mut Errors);

/// The faults of what a container asks for.
pub fn container_resources(at: &At, e: &mut Errors) {
    if at.exists() {
        requirements(at, resource::of_container, e);
    }
}

/// The faults of amounts that are limits without requests.
pub fn overhead(at: &At, e: &mut Errors) {
    let limits = at.called("limits", at.value);
    let mut flags = Flags::default();
    for (name, amount) in limits.entries() {
        limit(name, &amount, resource::of_container, &mut flags, e);
    }
    flags.check(at, e);
}

/// What the amounts have to do with each other.
#[derive(Default)]
struct Flags {
    compute: bool,
    huge: bool,
}

impl Flags {
    fn see(&mut self, name: &str) {
        self.compute |= name == "cpu" || name == "memory";
        self.huge |= resource::is_huge_page(name);
    }

    fn check(&self, at: &At, e: &mut Errors) {
        if self.huge && !self.compute {
            at.forbidden(e, "HugePages require cpu or memory");
        }
    }
}

fn limit(name: &str, at: &At, check: NameCheck, flags: &mut Flags, e: &mut Errors) {
    check(name, at, e);
    amount(name, at, e);
    flags.see(name);
    huge_pages(name, at, e);
}

/// The faults of an amount of a resource.
pub(in crate::validate) fn amount(name: &str, at: &At, e: &mut Errors) {
    if at.text().starts_with('-') && at.sign() < 0 {
        at.invalid_text(e, "must be greater than or equal to 0");
    }
    if resource::is_integer(name) && at.quantity().is_some_and(|quantity| quantity.millis() % 1000 != 0) {
        at.invalid_text(e, "must be an integer");
    }
}

fn huge_pages(name: &str, at: &At, e: &mut Errors) {
    let Some(size) = name.strip_prefix("hugepages-").map(Quantity::parse) else { return };
    let amount = at.quantity().map_or(0, Quantity::value);
    let divides = size.is_some_and(|size| size.value() > 0 && size.millis() % 1000 == 0 && amount % size.value() == 0);
    if !divides {
        at.invalid_text(e, format!("{} is not positive integer multiple of {name}", at.text()));
    }
}

fn requirements(at: &At, check: NameCheck, e: &mut Errors) {
    let (limits, requests) = (at.get("limits"), at.get("requests"));
    let mut flags = Flags::default();
    for (name, quantity) in limits.entries() {
        limit(name, &quantity, check, &mut flags, e);
    }
    for (name, quantity) in requests.entries() {
        check(name, &quantity, e);
        amount(name, &quantity, e);
        within(name, &quantity, &limits, &requests, e);
        flags.see(name);
        huge_pages(name, &quantity, e);
    }
    flags.check(at, e);
    claim_names(&at.get("claims"), e);
}

/// A request is within its limit, and equal to it where there is no overcommitment.
fn within(name: &str, request: &At, limits: &At, requests: &At, e: &mut Errors) {
    let limit = limits.get(name);
    let overcommits = resource::overcommits(name);
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

fn claim_names(list: &At, e: &mut Errors) {
    if list.is_empty() {
        return;
    }
    let claims = spec_of(list).get("resourceClaims");
    let known: Vec<&str> = claims.items().map(|claim| claim.text_of("name")).filter(|name| !name.is_empty()).collect();
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
            request.optional_form(e, names::label);
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
            claim.fault(e, Fault::NotFound(name.into()), message);
        }
    }
}

/// The faults of a pod's resource claims.
pub fn pod_claims(list: &At, e: &mut Errors) {
    let spec = list.up(1);
    let mirror = is_pod(spec) && spec.up(1).get("metadata").get("annotations").get(MIRROR).exists();
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
            name.form(e, names::label);
            seen.push(name.text());
        }
        rules::check("PodResourceClaim", &claim, e);
    }
}

/// The faults of what a pod asks for as a whole.
pub fn pod_resources(spec: &At, e: &mut Errors) {
    let at = spec.get("resources");
    if !at.exists() {
        return;
    }
    if spec.get("os").text_of("name") == "windows" {
        return at.forbidden(e, "may not be set for a windows pod");
    }
    at.get("claims").forbid(e, "claims may not be set for Resources at pod-level");
    requirements(&at, resource::of_pod, e);
    consistent(spec, &at, e);
}

/// The whole covers its parts.
fn consistent(spec: &At, at: &At, e: &mut Errors) {
    for kind in ["requests", "limits"] {
        let (amounts, parts) = (at.get(kind), amounts::container_resources(spec.value, kind));
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
        let place = places.index(index);
        for (name, limit) in container.get("resources").get("limits").entries() {
            let whole = limits.get(name);
            if let (Some(part), Some(quantity)) = (limit.quantity(), whole.quantity())
                && part > quantity
            {
                let message = format!("must be less than or equal to pod limits of {}", whole.text());
                place.key(name).get("limits").invalid_as(e, limit.text(), message);
            }
        }
    }
}
