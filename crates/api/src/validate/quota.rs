//! Quotas and limit ranges, as far as the tables cannot say what is right.

use super::{pod::resources, prelude::*, resource_name as resource};
use crate::quantity::Quantity;

const SCOPES: &str = "Terminating NotTerminating BestEffort NotBestEffort PriorityClass VolumeAttributesClass \
    CrossNamespacePodAffinity";
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

pub fn quota_amount(amount: &At, e: &mut Errors) {
    resource::of_quota(amount.name(), amount, e);
    resources::amount(amount.name(), amount, e);
}

pub fn scopes_kept(list: &At, e: &mut Errors) {
    let same = |one: &At, other: &At| one.texts().all(|scope| other.has(scope));
    if !same(list, &list.before()) || !same(&list.before(), list) {
        list.invalid(e, IMMUTABLE);
    }
}

fn applies(scope: &str, name: &str) -> bool {
    const COMPUTE: &[&str] =
        &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        scope if names::listed(SCOPES, scope) => COMPUTE.contains(&name),
        _ => true,
    }
}

pub fn scopes(spec: &At, e: &mut Errors) {
    let list = spec.get("scopes");
    for scope in list.texts() {
        if !names::listed(SCOPES, scope) {
            list.invalid(e, "unsupported scope");
        }
        for (name, _) in spec.get("hard").entries() {
            if resource::is_quota(name) && !applies(scope, name) {
                list.invalid(e, "unsupported scope applied to resource");
            }
        }
    }
    for pair in CONFLICTS {
        if pair.iter().all(|scope| list.has(scope)) {
            list.invalid(e, "conflicting scopes");
        }
    }
}

/// A scope is about resources that the quota limits. Upstream shows the whole selector.
pub fn scope_fits(name: &At, e: &mut Errors) {
    let selector = name.up(3);
    for (limit, _) in selector.up(1).get("hard").entries() {
        if resource::is_quota(limit) && !applies(name.text(), limit) {
            let shown = Bad::of("core/v1.ScopeSelector", selector.value);
            name.up(2).invalid_as(e, shown, "unsupported scope applied to resource");
        }
    }
}

pub fn conflicting_scopes(list: &At, e: &mut Errors) {
    for _ in CONFLICTS.iter().filter(|pair| pair.iter().all(|scope| list.find("scopeName", scope).is_some())) {
        list.invalid_as(e, list.up(2).get("scopes").value.clone(), "conflicting scopes");
    }
}

pub fn limit_type(kind: &At, e: &mut Errors) {
    let before = e.len();
    kind.form(e, names::qualified);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if e.len() == before && !kind.text().contains('/') && !standard {
        kind.invalid_text(e, "must be a standard limit type or fully qualified");
    }
}

/// A resource that containers, or anything, can be limited in.
pub fn limited(amount: &At, by: &str, e: &mut Errors) {
    let check = if by == "container" { resource::of_container } else { resource::any };
    check(amount.name(), amount, e);
}

/// The amounts of a limit fit together.
pub fn limit_relations(limit: &At, e: &mut Errors) {
    let kind = limit.text_of("type");
    const FIELDS: [&str; 5] = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];
    let mut keys: Vec<&str> =
        FIELDS.iter().flat_map(|field| limit.get(field).entries().map(|(key, _)| key).collect::<Vec<_>>()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let amount = |field: &str| {
            limit.get(field).get(key).quantity().filter(|_| kind != "Pod" || !field.starts_with("default"))
        };
        let (min, max, normal, request, ratio) =
            (amount("min"), amount("max"), amount("default"), amount("defaultRequest"), amount("maxLimitRequestRatio"));
        let mut over = |low: Option<Quantity>,
                        high: Option<Quantity>,
                        field: &str,
                        shown: Option<Quantity>,
                        text: (&str, &str)| {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
            {
                let message = format!("{} {low} is greater than {} {high}", text.0, text.1);
                limit.get(field).key(key).invalid_as(e, shown.to_string(), message);
            }
        };
        over(min, max, "min", min, ("min value", "max value"));
        over(min, request, "defaultRequest", request, ("min value", "default request value"));
        over(request, max, "defaultRequest", request, ("default request value", "max value"));
        over(request, normal, "defaultRequest", request, ("default request value", "default limit value"));
        over(min, normal, "default", min, ("min value", "default value"));
        over(normal, max, "default", max, ("default value", "max value"));
        if let Some(ratio) = ratio {
            let field = limit.get("maxLimitRequestRatio");
            let place = field.key(key);
            if ratio.millis() < 1000 {
                place.invalid_as(e, ratio.to_string(), format!("ratio {ratio} is less than 1"));
            }
            if let (Some(min), Some(max)) = (min, max) {
                let bound = max.millis() as f64 / min.millis() as f64;
                if ratio.millis() as f64 / 1000.0 > bound {
                    let message = format!("ratio {ratio} is greater than max/min = {bound:.6}");
                    place.invalid_as(e, ratio.to_string(), message);
                }
            }
        }
        if let (Some(normal), Some(request)) = (normal, request)
            && !resource::overcommits(key)
            && normal.partial_cmp(&request) != Some(std::cmp::Ordering::Equal)
        {
            let message = format!("default value {normal} must equal to defaultRequest value {request} in {key}");
            limit.get("defaultRequest").key(key).invalid_as(e, request.to_string(), message);
        }
    }
}
