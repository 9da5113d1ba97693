//! The runtime cost of a call, from the sizes of its arguments and its result. The rule is selected when the program is
//! planned.

use super::{
    CHECK_COST, Estimate, LIST_COST, REGEX_FACTOR, STRING_FACTOR, compares_elements, has_unit_cost, scale_cost,
    selector_parse_cost,
};
use crate::value::{MapValue, NativeValue, Value};

/// The cost rule of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// Traverses the first argument.
    First,
    /// Traverses the first argument and allocates a result of the same size.
    FirstTwice,
    /// Traverses the smaller of both arguments.
    Smaller,
    /// Traverses both arguments.
    Both,
    /// Compares with each element.
    Elements,
    /// Searches for a substring.
    Contains,
    Pattern,
    /// Traverses the first argument deeply, including its elements' strings.
    Traversal,
    Selector,
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
    /// Traverses the result twice.
    Joined,
    /// Allocates a list of the result's size.
    Made,
    /// Allocates a list whose length is an argument; charged before the call.
    Counted,
    Flatten,
    /// Compares each element of a list with every other one.
    SelfCompared(usize),
    Sets(u64),
}

/// Selects the cost rule of a call; `overload` is empty if it is resolved only at run time.
pub(crate) fn select_cost_rule(function: &str, overload: &str) -> CostRule {
    if let Some(price) = list_cost_rule(overload).or_else(|| kubernetes_cost_rule(function, overload)) {
        return price;
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => CostRule::First,
        "in_list" => CostRule::Elements,
        _ if compares_elements(overload) => CostRule::Smaller,
        "add_string" | "add_bytes" => CostRule::Both,
        "matches_string" => CostRule::Pattern,
        "contains_string" => CostRule::Contains,
        _ => CostRule::Fixed(1),
    }
}

/// Cost rules of `cel-go`'s lists and sets extension libraries.
fn list_cost_rule(overload: &str) -> Option<CostRule> {
    Some(match overload {
        "list_slice" | "list_reverse" => CostRule::Made,
        "lists_range" => CostRule::Counted,
        "list_flatten" | "list_flatten_int" => CostRule::Flatten,
        "list_distinct" => CostRule::SelfCompared(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => CostRule::Sets(1),
        "list_sets_equivalent_list" => CostRule::Sets(2),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => CostRule::SelfCompared(0),
        _ if overload.ends_with("_sortByAssociatedKeys") => CostRule::SelfCompared(1),
        _ => return None,
    })
}

fn kubernetes_cost_rule(function: &str, overload: &str) -> Option<CostRule> {
    Some(match function {
        "check" => CostRule::Fixed(CHECK_COST),
        _ if has_unit_cost(function) => CostRule::Fixed(1),
        "fieldSelector" | "labelSelector" => CostRule::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => CostRule::Traversal,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => CostRule::First,
        "ip" if overload == "cidr_ip" => CostRule::Fixed(1),
        "ip" => CostRule::First,
        "replace" | "split" | "ip.isCanonical" => CostRule::FirstTwice,
        "join" => CostRule::Joined,
        "find" | "findAll" => CostRule::Pattern,
        "containsIP" => CostRule::ContainsIp { text: overload == "cidr_contains_ip_string" },
        "containsCIDR" => CostRule::ContainsCidr { text: overload == "cidr_contains_cidr_string" },
        "validate" => CostRule::Validate,
        _ => return None,
    })
}

impl CostRule {
    /// Returns the cost known before the call, from its arguments.
    pub(crate) fn argument_cost(self, args: &[Value<'_>]) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::cost_size);
        let gone_over = |amount: u64| scale_cost(amount, STRING_FACTOR);
        match self {
            Self::Fixed(cost) => cost,
            Self::First => gone_over(size(0)),
            Self::FirstTwice => scale_cost(size(0), 2.0 * STRING_FACTOR),
            Self::Smaller => gone_over(size(0).min(size(1))),
            Self::Both => gone_over(size(0).saturating_add(size(1))),
            Self::Elements => size(1),
            Self::Contains => gone_over(size(0)).saturating_mul(gone_over(size(1))),
            Self::Pattern => gone_over(size(0) + 1).saturating_mul(scale_cost(size(1), REGEX_FACTOR)),
            Self::Traversal => args.first().map_or(0, traversal_cost),
            Self::Selector => selector_parse_cost(Estimate::fixed(size(1))).max,
            Self::ContainsIp { text } => gone_over(2 * size(0)) + if text { gone_over(size(1)) } else { 0 },
            Self::ContainsCidr { text } => {
                gone_over(2 * size(0)) + gone_over(size(0)) + 1 + if text { gone_over(size(1)) } else { 0 }
            }
            Self::Validate => {
                let pattern = match args.first() {
                    Some(Value::Native(native)) => match &**native {
                        NativeValue::Format(format) => format.pattern_size,
                        _ => return 1,
                    },
                    _ => return 1,
                };
                gone_over(size(1) + 1).saturating_mul(scale_cost(pattern, REGEX_FACTOR))
            }
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                (size(0) as f64 * depth) as u64 + 1 + LIST_COST
            }
            Self::SelfCompared(at) => self_comparison_cost(args.get(at)),
            Self::Sets(factor) => 1 + size(0).saturating_mul(size(1)).saturating_mul(factor),
            Self::Counted => match args.first() {
                Some(Value::Int(count)) => (*count).max(0) as u64 + 1 + LIST_COST,
                _ => 2 + LIST_COST,
            },
            Self::Joined | Self::Made => 0,
        }
    }

    /// Returns the cost that depends on the result.
    pub(crate) fn result_cost(self, result: Option<&Value<'_>>) -> u64 {
        let size = result.map_or(1, Value::cost_size);
        match self {
            Self::Joined => scale_cost(size, 2.0 * STRING_FACTOR),
            Self::Made => size + 1 + LIST_COST,
            _ => 0,
        }
    }
}

fn self_comparison_cost(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 + LIST_COST };
    let texts = matches!(list.iter().next(), Some(Value::String(_) | Value::Bytes(_)));
    let factor = if texts { 2.0 + STRING_FACTOR } else { 2.0 };
    let size = list.len() as u64;
    (size.saturating_mul(size) as f64 * factor) as u64 + 1 + LIST_COST
}

/// Returns the cost of traversing a value and everything in it.
fn traversal_cost(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Value::List(list) => list.iter().map(|item| traversal_cost(&item)).sum(),
        Value::Map(map) => entries_traversal_cost(map),
        _ => 1,
    }
}

fn entries_traversal_cost(map: &MapValue<'_>) -> u64 {
    map.entries().into_iter().map(|(key, value)| traversal_cost(&key.into()) + traversal_cost(&value)).sum()
}
