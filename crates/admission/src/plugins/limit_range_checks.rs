//! Checks resource requests and limits against the constraints of a LimitRange.

use api::{quantity::Quantity, resource_list::ResourceList};

use crate::DenialReason;

/// Resource requests and limits of a container, pod or claim.
pub struct ResourceAmounts {
    /// The requests.
    pub requests: ResourceList,
    /// The limits.
    pub limits: ResourceList,
}

/// The largest value whose milli-value fits into 64 bits.
const MAX_MILLIS: i64 = i64::MAX / 1000;

/// Converts quantities to comparable integers: milli-values if all of them fit, else values.
fn comparable_values<const N: usize>(quantities: [Quantity; N]) -> [i64; N] {
    let fits = quantities.iter().all(|quantity| quantity.value() <= MAX_MILLIS);
    quantities.map(|quantity| if fits { quantity.millis() } else { quantity.value() })
}

/// Checks `min`.
pub fn check_min(kind: &str, name: &str, bound: Quantity, amounts: &ResourceAmounts) -> Result<(), DenialReason> {
    let about = format!("minimum {name} usage per {kind} is {bound}");
    let Some(request) = amounts.requests.get(name) else {
        return Err(format!("{about}.  No request is specified").into());
    };
    let limit = amounts.limits.get(name);
    let [requested, limited, least] = comparable_values([*request, limit.copied().unwrap_or(Quantity::ZERO), bound]);
    match limit {
        _ if requested < least => Err(format!("{about}, but request is {request}").into()),
        Some(limit) if limited < least => Err(format!("{about}, but limit is {limit}").into()),
        _ => Ok(()),
    }
}

/// Checks `max`.
pub fn check_max(kind: &str, name: &str, bound: Quantity, amounts: &ResourceAmounts) -> Result<(), DenialReason> {
    let about = format!("maximum {name} usage per {kind} is {bound}");
    let Some(limit) = amounts.limits.get(name) else { return Err(format!("{about}.  No limit is specified").into()) };
    let request = amounts.requests.get(name);
    let [requested, limited, most] = comparable_values([request.copied().unwrap_or(Quantity::ZERO), *limit, bound]);
    match request {
        _ if limited > most => Err(format!("{about}, but limit is {limit}").into()),
        Some(request) if requested > most => Err(format!("{about}, but request is {request}").into()),
        _ => Ok(()),
    }
}

/// Checks `max` of the requests of resources without limits.
pub fn check_max_request(
    kind: &str,
    name: &str,
    bound: Quantity,
    amounts: &ResourceAmounts,
) -> Result<(), DenialReason> {
    let about = format!("maximum {name} usage per {kind} is {bound}");
    let Some(request) = amounts.requests.get(name) else {
        return Err(format!("{about}.  No request is specified").into());
    };
    let [requested, most] = comparable_values([*request, bound]);
    if requested > most { Err(format!("{about}, but request is {request}").into()) } else { Ok(()) }
}

/// Checks `maxLimitRequestRatio`.
pub fn check_max_ratio(kind: &str, name: &str, bound: Quantity, amounts: &ResourceAmounts) -> Result<(), DenialReason> {
    let about = format!("{name} max limit to request ratio per {kind} is {bound}");
    let amount = |list: &ResourceList| list.get(name).copied().unwrap_or(Quantity::ZERO);
    let [requested, limited, _] = comparable_values([amount(&amounts.requests), amount(&amounts.limits), bound]);
    if requested == 0 {
        return Err(format!("{about}, but no request is specified or request is 0").into());
    }
    if limited == 0 {
        return Err(format!("{about}, but no limit is specified or limit is 0").into());
    }
    let ratio = limited as f64 / requested as f64;
    let most = if bound.value() <= MAX_MILLIS { bound.millis() as f64 / 1000.0 } else { bound.value() as f64 };
    if ratio > most { Err(format!("{about}, but provided ratio is {ratio:.6}").into()) } else { Ok(()) }
}
