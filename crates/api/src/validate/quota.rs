//! Validation of ResourceQuotas and LimitRanges beyond the rule tables.

use super::{pod::resources, prelude::*, resource_name as resource};
use crate::quantity::Quantity;

const SCOPES: &str = "Terminating NotTerminating BestEffort NotBestEffort PriorityClass VolumeAttributesClass \
    CrossNamespacePodAffinity";
const CONFLICTING_SCOPES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

pub fn validate_quota_amount(amount: &FieldCursor, e: &mut ErrorList) {
    resource::validate_quota_resource_name(amount.name(), amount, e);
    resources::validate_quantity_value(amount.name(), amount, e);
}

pub fn validate_scopes_kept(list: &FieldCursor, e: &mut ErrorList) {
    let same = |one: &FieldCursor, other: &FieldCursor| one.texts().all(|scope| other.contains_text(scope));
    if !same(list, &list.old_cursor()) || !same(&list.old_cursor(), list) {
        list.invalid(e, IMMUTABLE);
    }
}

fn scope_applies_to(scope: &str, name: &str) -> bool {
    const COMPUTE: &[&str] =
        &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        scope if names::is_listed(SCOPES, scope) => COMPUTE.contains(&name),
        _ => true,
    }
}

pub fn validate_scopes(spec: &FieldCursor, e: &mut ErrorList) {
    let list = spec.get("scopes");
    for scope in list.texts() {
        if !names::is_listed(SCOPES, scope) {
            list.invalid(e, "unsupported scope");
        }
        for (name, _) in spec.get("hard").entries() {
            if resource::is_quota_resource(name) && !scope_applies_to(scope, name) {
                list.invalid(e, "unsupported scope applied to resource");
            }
        }
    }
    for pair in CONFLICTING_SCOPES {
        if pair.iter().all(|scope| list.contains_text(scope)) {
            list.invalid(e, "conflicting scopes");
        }
    }
}

/// Requires a scope to apply to the limited resources. Upstream renders the whole selector.
pub fn validate_scope_fits(name: &FieldCursor, e: &mut ErrorList) {
    let selector = name.ancestor(3);
    for (limit, _) in selector.ancestor(1).get("hard").entries() {
        if resource::is_quota_resource(limit) && !scope_applies_to(name.text(), limit) {
            let shown = render_bad_value("core/v1.ScopeSelector", selector.value);
            name.ancestor(2).invalid_as(e, shown, "unsupported scope applied to resource");
        }
    }
}

pub fn validate_conflicting_scopes(list: &FieldCursor, e: &mut ErrorList) {
    for _ in
        CONFLICTING_SCOPES.iter().filter(|pair| pair.iter().all(|scope| list.find_by("scopeName", scope).is_some()))
    {
        list.invalid_as(e, list.ancestor(2).get("scopes").value.clone(), "conflicting scopes");
    }
}

pub fn validate_limit_type(kind: &FieldCursor, e: &mut ErrorList) {
    let before = e.len();
    kind.check_format(e, names::check_qualified_name);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if e.len() == before && !kind.text().contains('/') && !standard {
        kind.invalid_text(e, "must be a standard limit type or fully qualified");
    }
}

/// Validates the resource name of a limit, for containers or any.
pub fn validate_limited(amount: &FieldCursor, by: &str, e: &mut ErrorList) {
    let check =
        if by == "container" { resource::validate_container_resource_name } else { resource::validate_resource_name };
    check(amount.name(), amount, e);
}

/// Validates the relations between the quantities of a limit.
pub fn validate_limit_relations(limit: &FieldCursor, e: &mut ErrorList) {
    let kind = limit.text_at("type");
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
                limit.get(field).entry(key).invalid_as(e, shown.to_string(), message);
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
            let place = field.entry(key);
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
            && !resource::is_overcommit_allowed(key)
            && normal.partial_cmp(&request) != Some(std::cmp::Ordering::Equal)
        {
            let message = format!("default value {normal} must equal to defaultRequest value {request} in {key}");
            limit.get("defaultRequest").entry(key).invalid_as(e, request.to_string(), message);
        }
    }
}
