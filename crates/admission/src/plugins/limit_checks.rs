//! The bounds of limit ranges, and what is said of who exceeds them.

use api::{quantity::Quantity, resource_list::ResourceList};

/// What somebody asks for.
pub struct Asked {
    /// At least.
    pub requests: ResourceList,
    /// At most.
    pub limits: ResourceList,
}

/// Below this, thousandths fit into 64 bits.
const MAX_MILLIS: i64 = i64::MAX / 1000;

/// Comparable numbers: thousandths if all of them fit.
fn comparable<const N: usize>(quantities: [Quantity; N]) -> [i64; N] {
    let fits = quantities.iter().all(|quantity| quantity.value() <= MAX_MILLIS);
    quantities.map(|quantity| if fits { quantity.millis() } else { quantity.value() })
}

/// Not less than a bound.
pub fn at_least(kind: &str, name: &str, bound: Quantity, asked: &Asked) -> Result<(), String> {
    let about = format!("minimum {name} usage per {kind} is {bound}");
    let Some(request) = asked.requests.get(name) else { return Err(format!("{about}.  No request is specified")) };
    let limit = asked.limits.get(name);
    let [requested, limited, least] = comparable([*request, limit.copied().unwrap_or(Quantity::ZERO), bound]);
    match limit {
        _ if requested < least => Err(format!("{about}, but request is {request}")),
        Some(limit) if limited < least => Err(format!("{about}, but limit is {limit}")),
        _ => Ok(()),
    }
}

/// Limited, to no more than a bound.
pub fn at_most(kind: &str, name: &str, bound: Quantity, asked: &Asked) -> Result<(), String> {
    let about = format!("maximum {name} usage per {kind} is {bound}");
    let Some(limit) = asked.limits.get(name) else { return Err(format!("{about}.  No limit is specified")) };
    let request = asked.requests.get(name);
    let [requested, limited, most] = comparable([request.copied().unwrap_or(Quantity::ZERO), *limit, bound]);
    match request {
        _ if limited > most => Err(format!("{about}, but limit is {limit}")),
        Some(request) if requested > most => Err(format!("{about}, but request is {request}")),
        _ => Ok(()),
    }
}

/// No more requested than a bound, where there are no limits.
pub fn at_most_requested(kind: &str, name: &str, bound: Quantity, asked: &Asked) -> Result<(), String> {
    let about = format!("maximum {name} usage per {kind} is {bound}");
    let Some(request) = asked.requests.get(name) else { return Err(format!("{about}.  No request is specified")) };
    let [requested, most] = comparable([*request, bound]);
    if requested > most { Err(format!("{about}, but request is {request}")) } else { Ok(()) }
}

/// A limit that is not more than so many times the request.
pub fn within_ratio(kind: &str, name: &str, bound: Quantity, asked: &Asked) -> Result<(), String> {
    let about = format!("{name} max limit to request ratio per {kind} is {bound}");
    let amount = |list: &ResourceList| list.get(name).copied().unwrap_or(Quantity::ZERO);
    let [requested, limited, _] = comparable([amount(&asked.requests), amount(&asked.limits), bound]);
    if requested == 0 {
        return Err(format!("{about}, but no request is specified or request is 0"));
    }
    if limited == 0 {
        return Err(format!("{about}, but no limit is specified or limit is 0"));
    }
    let ratio = limited as f64 / requested as f64;
    let most = if bound.value() <= MAX_MILLIS { bound.millis() as f64 / 1000.0 } else { bound.value() as f64 };
    if ratio > most { Err(format!("{about}, but provided ratio is {ratio:.6}")) } else { Ok(()) }
}
