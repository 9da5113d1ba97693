//! Quotas and limit ranges, as far as the tables cannot say what is right.

use super::{pod::resources, prelude::*, resource_name as resource};
use crate::quantity::Quantity;

pub(super) const FUNCTIONS: Functions = functions! {
    quota_amount scopes scope_selector scopes_kept limit_type limit_names limit_relations
};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

fn quota_amount(amount: &At, e: &mut Errors) {
    resource::of_quota(amount.name(), amount, e);
    resources::amount(amount.name(), amount, e);
}

fn scopes_kept(list: &At, e: &mut Errors) {
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
        scope if SCOPES.contains(&scope) => COMPUTE.contains(&name),
        _ => true,
    }
}

fn scopes(spec: &At, e: &mut Errors) {
    let list = spec.get("scopes");
    for scope in list.texts() {
        if !SCOPES.contains(&scope) {
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

fn scope_selector(spec: &At, e: &mut Errors) {
    let selector = spec.get("scopeSelector");
    let list = selector.get("matchExpressions");
    for requirement in list.items() {
        let (scope, operator, values) =
            (requirement.get("scopeName"), requirement.get("operator"), requirement.get("values"));
        if !SCOPES.contains(&scope.text()) {
            list.get("scopeName").invalid_as(e, scope.text(), "unsupported scope");
        }
        for (name, _) in spec.get("hard").entries() {
            if resource::is_quota(name) && !applies(scope.text(), name) {
                list.invalid_as(
                    e,
                    Bad::of("core/v1.ScopeSelector", selector.value),
                    "unsupported scope applied to resource",
                );
            }
        }
        let plain =
            SCOPES.contains(&scope.text()) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope.text());
        if plain && operator.text() != "Exists" {
            let message = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            list.get("operator").invalid_as(e, operator.text(), message);
        }
        match operator.text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let message = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    list.get("values").required(e, message);
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let message = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    list.get("values").invalid_as(e, values.value.clone(), message);
                }
            }
            text => list.get("operator").invalid_as(e, text, "not a valid selector operator"),
        }
    }
    let has = |name: &&str| list.items().any(|requirement| requirement.get("scopeName").text() == *name);
    for pair in CONFLICTS {
        if pair.iter().all(has) {
            list.invalid_as(e, spec.get("scopes").value.clone(), "conflicting scopes");
        }
    }
}

fn limit_type(kind: &At, e: &mut Errors) {
    let before = e.len();
    kind.form(e, names::qualified);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if e.len() == before && !kind.text().contains('/') && !standard {
        kind.invalid_text(e, "must be a standard limit type or fully qualified");
    }
}

/// The names of resources that a limit is about.
fn limit_names(limit: &At, e: &mut Errors) {
    let kind = limit.text_of("type");
    let check = |field: &str, e: &mut Errors| {
        for (name, amount) in limit.get(field).entries() {
            if kind == "Pod" || kind == "Container" {
                resource::of_container(name, &amount, e);
            } else {
                resource::any(name, &amount, e);
            }
        }
    };
    check("max", e);
    check("min", e);
    for field in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check(field, e);
        } else if !limit.get(field).is_empty() {
            limit.get(field).forbidden(e, "may not be specified when `type` is 'Pod'");
        }
    }
    let bounded = limit.get("min").get("storage").exists() || limit.get("max").get("storage").exists();
    if kind == "PersistentVolumeClaim" && !bounded {
        let message = "either minimum or maximum storage value is required, but neither was provided";
        limit.get("limits").required(e, message);
    }
    check("maxLimitRequestRatio", e);
}

/// The amounts of a limit fit together.
fn limit_relations(limit: &At, e: &mut Errors) {
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
