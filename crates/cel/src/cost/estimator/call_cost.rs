//! Cost estimates of calls, from the size estimates of their arguments.

use super::{CallArg, CostEstimator};
use crate::{
    ast::ExprId,
    cost::{
        CHECK_COST, Estimate, LIST_COST, REGEX_FACTOR, STRING_FACTOR, compares_elements, has_unit_cost, scale_cost,
        selector_parse_cost,
    },
    types::{Type, type_names},
};

/// Estimates the cost of a call including its arguments, and the size of its result where known.
pub(super) fn estimate_call(
    at: &mut CostEstimator<'_>,
    id: ExprId,
    function: &str,
    overload: &str,
    target: Option<&CallArg<'_>>,
    args: &[CallArg<'_>],
) -> (Estimate, Option<Estimate>) {
    let all = args.iter().fold(Estimate::ZERO, |sum, arg| sum.add(arg.cost));
    let own = estimate_list_call(at, overload, target, args)
        .or_else(|| estimate_kubernetes_call(at, function, overload, target, args));
    if let Some((cost, size)) = own {
        return (cost.add(all), size);
    }
    if overload == "conditional" {
        return estimate_conditional(at, id, args);
    }
    let (cost, size) = estimate_standard_call(at, id, overload, target, args).unwrap_or((Estimate::ONE, None));
    (cost.add(all), size)
}

type CallEstimate = Option<(Estimate, Option<Estimate>)>;

fn estimate_conditional(at: &mut CostEstimator<'_>, id: ExprId, args: &[CallArg<'_>]) -> (Estimate, Option<Estimate>) {
    let [condition, then, otherwise] = args else { return (Estimate::ZERO, None) };
    let entries = at.entries_of(then.id).zip(at.entries_of(otherwise.id)).map(|(a, b)| a.union(b));
    at.set_entries(id, entries);
    (condition.cost.add(then.cost.union(otherwise.cost)), Some(then.known_size().union(otherwise.known_size())))
}

/// Cost rules of `cel-go`'s standard functions.
fn estimate_standard_call(
    at: &mut CostEstimator<'_>,
    id: ExprId,
    overload: &str,
    target: Option<&CallArg<'_>>,
    args: &[CallArg<'_>],
) -> CallEstimate {
    let first = args.first().map(CallArg::known_size);
    let gone_over = |size: Estimate| size.scale_by(STRING_FACTOR);
    Some(match overload {
        "string_format" => (gone_over(target?.known_size()), None),
        "string_to_bytes" => {
            let size = first?;
            (gone_over(size), Some(Estimate { min: size.min, max: size.max.wrapping_mul(4) }))
        }
        "bytes_to_string" => {
            let size = first?;
            (gone_over(size), Some(Estimate { min: size.min / 4, max: size.max }))
        }
        "strings_quote" => {
            let size = first?;
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            (gone_over(size), Some(Estimate { min: size.min + 2, max }))
        }
        "starts_with_string" | "ends_with_string" => (gone_over(first?), None),
        "in_list" => (args.get(1)?.known_size(), None),
        "matches_string" => {
            let text = gone_over(target?.known_size().add(Estimate::ONE));
            (text.multiply(first?.scale_by(REGEX_FACTOR)), None)
        }
        "contains_string" => (gone_over(target?.known_size()).multiply(gone_over(first?)), None),
        "add_string" | "add_bytes" | "add_list" => {
            let [left, right] = args else { return None };
            let size = left.known_size().add(right.known_size());
            let entries = at.entries_of(left.id).zip(at.entries_of(right.id)).map(|(a, b)| a.union(b));
            at.set_entries(id, entries);
            (if overload == "add_list" { Estimate::ONE } else { gone_over(size) }, Some(size))
        }
        _ if compares_elements(overload) => {
            let most = first?.max.min(args.get(1)?.known_size().max);
            (gone_over(Estimate { min: u64::from(most > 0), max: most }), None)
        }
        _ => return None,
    })
}

/// Cost rules of `cel-go`'s lists and sets extension libraries.
fn estimate_list_call(
    at: &CostEstimator<'_>,
    overload: &str,
    target: Option<&CallArg<'_>>,
    args: &[CallArg<'_>],
) -> CallEstimate {
    let size = |arg: &CallArg<'_>| arg.size.or_else(|| at.declared_size(&arg.path)).unwrap_or(Estimate::UNKNOWN);
    let made =
        |factor: f64, size: Estimate| Some((size.scale_by(factor).add(Estimate::fixed(1 + LIST_COST)), Some(size)));
    match overload {
        "list_slice" => {
            let [start, end] = args else { return None };
            let end = at.int_literal(end.id).unwrap_or(size(target?).max);
            let start = at.int_literal(start.id).unwrap_or(0);
            made(1.0, Estimate::fixed(end.wrapping_sub(start)))
        }
        "lists_range" => made(1.0, Estimate::fixed(at.int_literal(args.first()?.id).unwrap_or(u64::MAX))),
        "list_reverse" => made(1.0, size(target?)),
        "list_flatten" => made(1.0, size(target?)),
        "list_flatten_int" => made(at.int_literal(args.first()?.id).unwrap_or(u64::MAX) as f64, size(target?)),
        "list_distinct" => made(2.0, size(target?).multiply(size(target?))),
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let [a, b] = args else { return None };
            let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            Some((size(a).multiply(size(b)).scale_by(factor).add(Estimate::ONE), None))
        }
        _ => {
            let sorted = if overload.ends_with("_sortByAssociatedKeys") {
                args.first()?
            } else if overload.starts_with("list_") && overload.ends_with("_sort") {
                target?
            } else {
                return None;
            };
            let texts = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
            let factor = if texts { 2.0 + STRING_FACTOR } else { 2.0 };
            made(factor, size(sorted).multiply(size(sorted)))
        }
    }
}

/// Cost rules of Kubernetes' CEL libraries (`k8s.io/apiserver/pkg/cel/library/cost.go`).
fn estimate_kubernetes_call(
    at: &CostEstimator<'_>,
    function: &str,
    overload: &str,
    target: Option<&CallArg<'_>>,
    args: &[CallArg<'_>],
) -> CallEstimate {
    let size = |arg: &CallArg<'_>| arg.size.or_else(|| at.declared_size(&arg.path)).unwrap_or(Estimate::UNKNOWN);
    let first = args.first().map(size);
    let gone_over = |size: Estimate| size.scale_by(STRING_FACTOR);
    Some(match function {
        "check" => (Estimate::fixed(CHECK_COST), None),
        _ if has_unit_cost(function) => (Estimate::ONE, None),
        "fieldSelector" | "labelSelector" => (selector_parse_cost(first?), None),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            estimate_traversal(at, target?, size(target?))
        }
        "url" | "jsonpatch.escapeKey" => (gone_over(first?), first),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => (gone_over(size(target?)), Some(size(target?))),
        "replace" => {
            let [old, new, ..] = args else { return None };
            let text = size(target?);
            (text.scale_by(2.0 * STRING_FACTOR), Some(estimate_replaced_size(text, size(old), size(new))))
        }
        "split" => {
            let text = size(target?);
            let most = args.get(1).and_then(|most| at.int_literal(most.id)).unwrap_or(text.max);
            (text.scale_by(2.0 * STRING_FACTOR), Some(Estimate { min: 0, max: most }))
        }
        "join" => {
            let list = size(target?);
            let mut joined = estimate_elements(at, target?).map_or(Estimate::ZERO, |(_, size)| list.multiply(size));
            if let Some(separator) = first {
                let between = Estimate { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                joined = joined.add(separator.multiply(between));
            }
            (gone_over(joined), Some(joined))
        }
        "find" | "findAll" => {
            let text = size(target?);
            let cost = gone_over(text.add(Estimate::ONE)).multiply(first?.scale_by(REGEX_FACTOR));
            (cost, Some(Estimate { min: 0, max: text.max }))
        }
        "ip" if overload == "cidr_ip" => (Estimate::ONE, None),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            (gone_over(first?), None)
        }
        "ip.isCanonical" => (first?.scale_by(2.0 * STRING_FACTOR), None),
        "containsIP" | "containsCIDR" => {
            let bytes = Estimate { min: 4, max: 16 };
            let mut cost = gone_over(bytes.add(bytes));
            if function == "containsCIDR" {
                cost = cost.add(gone_over(bytes)).add(Estimate::ONE);
            }
            if overload.ends_with("_string") {
                cost = cost.add(gone_over(first?));
            }
            (cost, None)
        }
        "validate" => (gone_over(first?).scale_by(128.0 * REGEX_FACTOR), None),
        "_==_" => {
            let [left, right] = args else { return None };
            (estimate_equality(at.expr_type(left.id), at.expr_type(right.id), right.size)?, None)
        }
        _ => return None,
    })
}

/// Estimates the equality of Kubernetes' library types.
fn estimate_equality(left: &Type, right: &Type, size: Option<Estimate>) -> Option<Estimate> {
    if left != right {
        return None;
    }
    let Type::Native(name) = left else { return None };
    Some(match *name {
        type_names::FORMAT => Estimate { min: 1, max: 64 }.scale_by(STRING_FACTOR),
        type_names::URL => Estimate { min: 1, max: size.unwrap_or(Estimate::ONE).max }.scale_by(STRING_FACTOR),
        _ => Estimate::ONE,
    })
}

/// Returns the type and size estimate of a list's elements.
fn estimate_elements<'a>(at: &CostEstimator<'a>, list: &CallArg<'_>) -> Option<(&'a Type, Estimate)> {
    let ty = match at.expr_type(list.id) {
        Type::List(of) | Type::Optional(of) => &**of,
        Type::Map(of) => &of.0,
        _ => return None,
    };
    let size = if list.path.is_empty() {
        None
    } else {
        let mut path = list.path.clone();
        path.push("@items");
        at.declared_size(&path)
    };
    Some((ty, size.unwrap_or(Estimate::UNKNOWN)))
}

fn estimate_traversal(at: &CostEstimator<'_>, target: &CallArg<'_>, size: Estimate) -> (Estimate, Option<Estimate>) {
    let cost = match estimate_elements(at, target) {
        Some((Type::String | Type::Bytes, each)) => size.multiply(Estimate::ONE.add(each.scale_by(STRING_FACTOR))),
        Some(_) => size,
        None => size.scale_by(STRING_FACTOR),
    };
    (cost, None)
}

/// Estimates the size of the result of `replace`.
fn estimate_replaced_size(text: Estimate, old: Estimate, new: Estimate) -> Estimate {
    let (mut count, mut kept) = (Estimate::ZERO, Estimate::ZERO);
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = scale_cost(text.max, 1.0 / old.min as f64);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.multiply(new).add(kept)
}
