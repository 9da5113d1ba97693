//! The runtime cost of a call, from the sizes of its arguments and its result. The rule is selected when the program is
//! planned.

use super::{CHECK, LIST, PER_CHARACTER, PER_PATTERN_CHARACTER, Range, compares, is_plain, scale, selector};
use crate::{
    library::native::Native,
    value::{Map, Value},
};

/// The cost rule of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
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
pub(crate) fn price(function: &str, overload: &str) -> Price {
    if let Some(price) = listed(overload).or_else(|| kubernetes(function, overload)) {
        return price;
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => Price::First,
        "in_list" => Price::Elements,
        _ if compares(overload) => Price::Smaller,
        "add_string" | "add_bytes" => Price::Both,
        "matches_string" => Price::Pattern,
        "contains_string" => Price::Contains,
        _ => Price::Fixed(1),
    }
}

/// Cost rules of `cel-go`'s lists and sets extension libraries.
fn listed(overload: &str) -> Option<Price> {
    Some(match overload {
        "list_slice" | "list_reverse" => Price::Made,
        "lists_range" => Price::Counted,
        "list_flatten" | "list_flatten_int" => Price::Flatten,
        "list_distinct" => Price::SelfCompared(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => Price::Sets(1),
        "list_sets_equivalent_list" => Price::Sets(2),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => Price::SelfCompared(0),
        _ if overload.ends_with("_sortByAssociatedKeys") => Price::SelfCompared(1),
        _ => return None,
    })
}

fn kubernetes(function: &str, overload: &str) -> Option<Price> {
    Some(match function {
        "check" => Price::Fixed(CHECK),
        _ if is_plain(function) => Price::Fixed(1),
        "fieldSelector" | "labelSelector" => Price::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Price::Traversal,
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
        | "isSemver" => Price::First,
        "ip" if overload == "cidr_ip" => Price::Fixed(1),
        "ip" => Price::First,
        "replace" | "split" | "ip.isCanonical" => Price::FirstTwice,
        "join" => Price::Joined,
        "find" | "findAll" => Price::Pattern,
        "containsIP" => Price::ContainsIp { text: overload == "cidr_contains_ip_string" },
        "containsCIDR" => Price::ContainsCidr { text: overload == "cidr_contains_cidr_string" },
        "validate" => Price::Validate,
        _ => return None,
    })
}

impl Price {
    /// Returns the cost known before the call, from its arguments.
    pub(crate) fn before(self, args: &[Value<'_>]) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::size);
        let gone_over = |amount: u64| scale(amount, PER_CHARACTER);
        match self {
            Self::Fixed(cost) => cost,
            Self::First => gone_over(size(0)),
            Self::FirstTwice => scale(size(0), 2.0 * PER_CHARACTER),
            Self::Smaller => gone_over(size(0).min(size(1))),
            Self::Both => gone_over(size(0).saturating_add(size(1))),
            Self::Elements => size(1),
            Self::Contains => gone_over(size(0)).saturating_mul(gone_over(size(1))),
            Self::Pattern => gone_over(size(0) + 1).saturating_mul(scale(size(1), PER_PATTERN_CHARACTER)),
            Self::Traversal => args.first().map_or(0, traversal),
            Self::Selector => selector(Range::exactly(size(1))).max,
            Self::ContainsIp { text } => gone_over(2 * size(0)) + if text { gone_over(size(1)) } else { 0 },
            Self::ContainsCidr { text } => {
                gone_over(2 * size(0)) + gone_over(size(0)) + 1 + if text { gone_over(size(1)) } else { 0 }
            }
            Self::Validate => {
                let pattern = match args.first() {
                    Some(Value::Native(native)) => match &**native {
                        Native::Format(format) => format.pattern_size,
                        _ => return 1,
                    },
                    _ => return 1,
                };
                gone_over(size(1) + 1).saturating_mul(scale(pattern, PER_PATTERN_CHARACTER))
            }
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                (size(0) as f64 * depth) as u64 + 1 + LIST
            }
            Self::SelfCompared(at) => self_compared(args.get(at)),
            Self::Sets(factor) => 1 + size(0).saturating_mul(size(1)).saturating_mul(factor),
            Self::Counted => match args.first() {
                Some(Value::Int(count)) => (*count).max(0) as u64 + 1 + LIST,
                _ => 2 + LIST,
            },
            Self::Joined | Self::Made => 0,
        }
    }

    /// Returns the cost that depends on the result.
    pub(crate) fn after(self, result: Option<&Value<'_>>) -> u64 {
        let size = result.map_or(1, Value::size);
        match self {
            Self::Joined => scale(size, 2.0 * PER_CHARACTER),
            Self::Made => size + 1 + LIST,
            _ => 0,
        }
    }
}

fn self_compared(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 + LIST };
    let texts = matches!(list.iter().next(), Some(Value::String(_) | Value::Bytes(_)));
    let factor = if texts { 2.0 + PER_CHARACTER } else { 2.0 };
    let size = list.len() as u64;
    (size.saturating_mul(size) as f64 * factor) as u64 + 1 + LIST
}

/// Returns the cost of traversing a value and everything in it.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * PER_CHARACTER) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHARACTER) as u64,
        Value::List(list) => list.iter().map(|item| traversal(&item)).sum(),
        Value::Map(map) => entries(map),
        _ => 1,
    }
}

fn entries(map: &Map<'_>) -> u64 {
    map.entries().into_iter().map(|(key, value)| traversal(&key.into()) + traversal(&value)).sum()
}
