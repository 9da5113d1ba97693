//! The cost of evaluation in the units of `cel-go` and Kubernetes' libraries: the static worst-case estimate from the
//! sizes that a schema allows ([`estimator`]), and the actual runtime cost ([`runtime_cost`]).

mod estimator;
pub(crate) mod runtime_cost;

pub use self::estimator::{SizeEstimator, UnboundedSizes};

/// An inclusive range of costs or sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

/// Cost of traversing one character of a string.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// Cost of one character of a regular expression.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
pub(crate) const LIST_COST: u64 = 10;
pub(crate) const MAP_COST: u64 = 30;
pub(crate) const STRUCT_COST: u64 = 40;
/// Cost of an authorization check: the per-expression limit allows two.
pub(crate) const CHECK_COST: u64 = 350_000;

/// Whether an overload compares its arguments element by element, until they differ or one of them ends.
fn compares_elements(overload: &str) -> bool {
    let of_texts = || overload.strip_suffix("_string").or_else(|| overload.strip_suffix("_bytes"));
    let ordered = || of_texts().is_some_and(|it| matches!(it, "less" | "greater" | "less_equals" | "greater_equals"));
    matches!(overload, "equals" | "not_equals") || ordered()
}

impl Estimate {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    pub(crate) const ZERO: Self = Self::fixed(0);
    pub(crate) const ONE: Self = Self::fixed(1);

    /// A range whose minimum and maximum are equal.
    pub const fn fixed(amount: u64) -> Self {
        Self { min: amount, max: amount }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn scale_by(self, factor: f64) -> Self {
        Self { min: scale_cost(self.min, factor), max: scale_cost(self.max, factor) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies and rounds up, saturating at the maximum.
pub(crate) fn scale_cost(amount: u64, factor: f64) -> u64 {
    let product = (amount as f64 * factor).ceil();
    if product >= u64::MAX as f64 { u64::MAX } else { product as u64 }
}

/// Cost of parsing a field or label selector of a length: its traversal, and one requirement per two characters.
pub(crate) fn selector_parse_cost(length: Estimate) -> Estimate {
    let requirements = length.scale_by(0.5).scale_by((LIST_COST + STRUCT_COST) as f64);
    Estimate::fixed(LIST_COST).add(length.scale_by(STRING_FACTOR)).add(requirements)
}

/// Accessors and predicates of Kubernetes' libraries with a fixed cost of one.
const UNIT_COST: &[&str] = &[
    "serviceAccount",
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "allowed",
    "reason",
    "error",
    "errored",
    "masked",
    "prefixLength",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "format.named",
    "sign",
    "asInteger",
    "isInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "getScheme",
    "getHostname",
    "getHost",
    "getPort",
    "getEscapedPath",
    "getQuery",
];

fn has_unit_cost(function: &str) -> bool {
    UNIT_COST.contains(&function)
}
