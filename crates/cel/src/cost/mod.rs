//! What evaluation costs, in the units of `cel-go` and of Kubernetes' libraries: a worst case that is estimated from the
//! sizes that a schema allows ([`estimate`]), and what it did cost ([`price`]).

mod calls;
mod estimate;
pub(crate) mod price;

pub use self::estimate::{Sizes, Unlimited};

/// From the least to the most something may cost, or how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// What each character costs that is gone over.
pub(crate) const PER_CHARACTER: f64 = 0.1;
/// What each character of a pattern costs.
pub(crate) const PER_PATTERN_CHARACTER: f64 = 0.25;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
/// An authorization check: an expression can afford two.
pub(crate) const CHECK: u64 = 350_000;

/// Whether a call goes over its arguments until they differ or one of them ends.
fn compares(overload: &str) -> bool {
    let of_texts = || overload.strip_suffix("_string").or_else(|| overload.strip_suffix("_bytes"));
    let ordered = || of_texts().is_some_and(|it| matches!(it, "less" | "greater" | "less_equals" | "greater_equals"));
    matches!(overload, "equals" | "not_equals") || ordered()
}

impl Range {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    pub(crate) const ZERO: Self = Self::exactly(0);
    pub(crate) const ONE: Self = Self::exactly(1);

    /// No less and no more.
    pub const fn exactly(amount: u64) -> Self {
        Self { min: amount, max: amount }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Rounded up; what has no room is the largest number.
pub(crate) fn scale(amount: u64, factor: f64) -> u64 {
    let product = (amount as f64 * factor).ceil();
    if product >= u64::MAX as f64 { u64::MAX } else { product as u64 }
}

/// What reading a field or label selector of a length costs: going over it, and a requirement for every two characters.
pub(crate) fn selector(length: Range) -> Range {
    let requirements = length.scaled(0.5).scaled((LIST + STRUCT) as f64);
    Range::exactly(LIST).plus(length.scaled(PER_CHARACTER)).plus(requirements)
}

/// Calls of Kubernetes' libraries that only look at what is there: each costs one, whatever it looks at.
const PLAIN: &[&str] = &[
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

fn is_plain(function: &str) -> bool {
    PLAIN.contains(&function)
}
