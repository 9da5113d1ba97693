//! Cost estimates of calls, from the size estimates of their arguments.

use super::{
    CHECK, LIST, PER_CHARACTER, PER_PATTERN_CHARACTER, Range, compares,
    estimate::{Argument, Estimate},
    is_plain, scale, selector,
};
use crate::{
    ast::Id,
    types::{Type, names},
};

/// Estimates the cost of a call including its arguments, and the size of its result where known.
pub(super) fn estimate(
    at: &mut Estimate<'_>,
    id: Id,
    function: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> (Range, Option<Range>) {
    let all = args.iter().fold(Range::ZERO, |sum, arg| sum.plus(arg.cost));
    let own = listed(at, overload, target, args).or_else(|| kubernetes(at, function, overload, target, args));
    if let Some((cost, size)) = own {
        return (cost.plus(all), size);
    }
    if overload == "conditional" {
        return conditional(at, id, args);
    }
    let (cost, size) = standard(at, id, overload, target, args).unwrap_or((Range::ONE, None));
    (cost.plus(all), size)
}

type Found = Option<(Range, Option<Range>)>;

fn conditional(at: &mut Estimate<'_>, id: Id, args: &[Argument<'_>]) -> (Range, Option<Range>) {
    let [condition, then, otherwise] = args else { return (Range::ZERO, None) };
    let entries = at.entries_of(then.id).zip(at.entries_of(otherwise.id)).map(|(a, b)| a.or(b));
    at.set_entries(id, entries);
    (condition.cost.plus(then.cost.or(otherwise.cost)), Some(then.size().or(otherwise.size())))
}

/// Cost rules of `cel-go`'s standard functions.
fn standard(
    at: &mut Estimate<'_>,
    id: Id,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Found {
    let first = args.first().map(Argument::size);
    let gone_over = |size: Range| size.scaled(PER_CHARACTER);
    Some(match overload {
        "string_format" => (gone_over(target?.size()), None),
        "string_to_bytes" => {
            let size = first?;
            (gone_over(size), Some(Range { min: size.min, max: size.max.wrapping_mul(4) }))
        }
        "bytes_to_string" => {
            let size = first?;
            (gone_over(size), Some(Range { min: size.min / 4, max: size.max }))
        }
        "strings_quote" => {
            let size = first?;
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            (gone_over(size), Some(Range { min: size.min + 2, max }))
        }
        "starts_with_string" | "ends_with_string" => (gone_over(first?), None),
        "in_list" => (args.get(1)?.size(), None),
        "matches_string" => {
            let text = gone_over(target?.size().plus(Range::ONE));
            (text.times(first?.scaled(PER_PATTERN_CHARACTER)), None)
        }
        "contains_string" => (gone_over(target?.size()).times(gone_over(first?)), None),
        "add_string" | "add_bytes" | "add_list" => {
            let [left, right] = args else { return None };
            let size = left.size().plus(right.size());
            let entries = at.entries_of(left.id).zip(at.entries_of(right.id)).map(|(a, b)| a.or(b));
            at.set_entries(id, entries);
            (if overload == "add_list" { Range::ONE } else { gone_over(size) }, Some(size))
        }
        _ if compares(overload) => {
            let most = first?.max.min(args.get(1)?.size().max);
            (gone_over(Range { min: u64::from(most > 0), max: most }), None)
        }
        _ => return None,
    })
}

/// Cost rules of `cel-go`'s lists and sets extension libraries.
fn listed(at: &Estimate<'_>, overload: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Found {
    let size = |arg: &Argument<'_>| arg.size.or_else(|| at.declared(&arg.path)).unwrap_or(Range::UNKNOWN);
    let made = |factor: f64, size: Range| Some((size.scaled(factor).plus(Range::exactly(1 + LIST)), Some(size)));
    match overload {
        "list_slice" => {
            let [start, end] = args else { return None };
            let end = at.literal(end.id).unwrap_or(size(target?).max);
            let start = at.literal(start.id).unwrap_or(0);
            made(1.0, Range::exactly(end.wrapping_sub(start)))
        }
        "lists_range" => made(1.0, Range::exactly(at.literal(args.first()?.id).unwrap_or(u64::MAX))),
        "list_reverse" => made(1.0, size(target?)),
        "list_flatten" => made(1.0, size(target?)),
        "list_flatten_int" => made(at.literal(args.first()?.id).unwrap_or(u64::MAX) as f64, size(target?)),
        "list_distinct" => made(2.0, size(target?).times(size(target?))),
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let [a, b] = args else { return None };
            let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            Some((size(a).times(size(b)).scaled(factor).plus(Range::ONE), None))
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
            let factor = if texts { 2.0 + PER_CHARACTER } else { 2.0 };
            made(factor, size(sorted).times(size(sorted)))
        }
    }
}

/// Cost rules of Kubernetes' CEL libraries (`k8s.io/apiserver/pkg/cel/library/cost.go`).
fn kubernetes(
    at: &Estimate<'_>,
    function: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Found {
    let size = |arg: &Argument<'_>| arg.size.or_else(|| at.declared(&arg.path)).unwrap_or(Range::UNKNOWN);
    let first = args.first().map(size);
    let gone_over = |size: Range| size.scaled(PER_CHARACTER);
    Some(match function {
        "check" => (Range::exactly(CHECK), None),
        _ if is_plain(function) => (Range::ONE, None),
        "fieldSelector" | "labelSelector" => (selector(first?), None),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => traversal(at, target?, size(target?)),
        "url" | "jsonpatch.escapeKey" => (gone_over(first?), first),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => (gone_over(size(target?)), Some(size(target?))),
        "replace" => {
            let [old, new, ..] = args else { return None };
            let text = size(target?);
            (text.scaled(2.0 * PER_CHARACTER), Some(replaced(text, size(old), size(new))))
        }
        "split" => {
            let text = size(target?);
            let most = args.get(1).and_then(|most| at.literal(most.id)).unwrap_or(text.max);
            (text.scaled(2.0 * PER_CHARACTER), Some(Range { min: 0, max: most }))
        }
        "join" => {
            let list = size(target?);
            let mut joined = element(at, target?).map_or(Range::ZERO, |(_, size)| list.times(size));
            if let Some(separator) = first {
                let between = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                joined = joined.plus(separator.times(between));
            }
            (gone_over(joined), Some(joined))
        }
        "find" | "findAll" => {
            let text = size(target?);
            let cost = gone_over(text.plus(Range::ONE)).times(first?.scaled(PER_PATTERN_CHARACTER));
            (cost, Some(Range { min: 0, max: text.max }))
        }
        "ip" if overload == "cidr_ip" => (Range::ONE, None),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            (gone_over(first?), None)
        }
        "ip.isCanonical" => (first?.scaled(2.0 * PER_CHARACTER), None),
        "containsIP" | "containsCIDR" => {
            let bytes = Range { min: 4, max: 16 };
            let mut cost = gone_over(bytes.plus(bytes));
            if function == "containsCIDR" {
                cost = cost.plus(gone_over(bytes)).plus(Range::ONE);
            }
            if overload.ends_with("_string") {
                cost = cost.plus(gone_over(first?));
            }
            (cost, None)
        }
        "validate" => (gone_over(first?).scaled(128.0 * PER_PATTERN_CHARACTER), None),
        "_==_" => {
            let [left, right] = args else { return None };
            (equality(at.ty(left.id), at.ty(right.id), right.size)?, None)
        }
        _ => return None,
    })
}

/// Estimates the equality of Kubernetes' library types.
fn equality(left: &Type, right: &Type, size: Option<Range>) -> Option<Range> {
    if left != right {
        return None;
    }
    let Type::Native(name) = left else { return None };
    Some(match *name {
        names::FORMAT => Range { min: 1, max: 64 }.scaled(PER_CHARACTER),
        names::URL => Range { min: 1, max: size.unwrap_or(Range::ONE).max }.scaled(PER_CHARACTER),
        _ => Range::ONE,
    })
}

/// Returns the type and size estimate of a list's elements.
fn element<'a>(at: &Estimate<'a>, list: &Argument<'_>) -> Option<(&'a Type, Range)> {
    let ty = match at.ty(list.id) {
        Type::List(of) | Type::Optional(of) => &**of,
        Type::Map(of) => &of.0,
        _ => return None,
    };
    let size = if list.path.is_empty() {
        None
    } else {
        let mut path = list.path.clone();
        path.push("@items");
        at.declared(&path)
    };
    Some((ty, size.unwrap_or(Range::UNKNOWN)))
}

fn traversal(at: &Estimate<'_>, target: &Argument<'_>, size: Range) -> (Range, Option<Range>) {
    let cost = match element(at, target) {
        Some((Type::String | Type::Bytes, each)) => size.times(Range::ONE.plus(each.scaled(PER_CHARACTER))),
        Some(_) => size,
        None => size.scaled(PER_CHARACTER),
    };
    (cost, None)
}

/// Estimates the size of the result of `replace`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = scale(text.max, 1.0 / old.min as f64);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
