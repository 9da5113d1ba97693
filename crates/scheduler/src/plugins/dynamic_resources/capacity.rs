//! Consumable capacity: what a request takes of a device that several claims share.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::{
    api::resource::v1::{CapacityRequestPolicy, CapacityRequirements, Device, DeviceCapacity},
    apimachinery::pkg::api::resource::Quantity as QuantityText,
};

/// Amounts by the name of the capacity.
pub type Capacities = BTreeMap<String, Quantity>;

fn parse(text: &QuantityText) -> Quantity {
    Quantity::parse(&text.0).unwrap_or(Quantity::ZERO)
}

fn requested(requests: Option<&CapacityRequirements>, name: &str) -> Option<Quantity> {
    requests?.requests.as_ref()?.get(name).map(parse)
}

/// Returns what a request takes of each capacity of a device.
pub fn consumed_capacities(requests: Option<&CapacityRequirements>, device: &Device) -> Capacities {
    let capacities = device.capacity.iter().flatten();
    capacities.map(|(name, capacity)| (name.clone(), consumed(requested(requests, name), capacity))).collect()
}

/// Whether a device has what a request takes beside what others took; capacities that the device lacks are never there.
pub fn has_capacity(requests: Option<&CapacityRequirements>, device: &Device, taken: &[&Capacities]) -> bool {
    let known = device.capacity.as_ref();
    let mut names = requests.and_then(|requests| requests.requests.as_ref()).into_iter().flatten();
    if names.any(|(name, _)| !known.is_some_and(|known| known.contains_key(name))) {
        return false;
    }
    known.into_iter().flatten().all(|(name, capacity)| {
        let amount = consumed(requested(requests, name), capacity);
        let taken = taken.iter().filter_map(|taken| taken.get(name));
        let total = taken.fold(amount, |total, other| total.plus(*other));
        !violates_policy(amount, capacity.request_policy.as_ref()) && total <= parse(&capacity.value)
    })
}

/// Rounds a request up as the policy of the capacity says; without a request it is the default, or all.
fn consumed(request: Option<Quantity>, capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let Some(request) = request else {
        return parse(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value));
    };
    let range = policy.and_then(|policy| policy.valid_range.as_ref());
    let values = policy.and_then(|policy| policy.valid_values.as_ref());
    match (range, values) {
        (Some(range), _) => {
            let least = parse(&range.min);
            match &range.step {
                _ if request < least => least,
                None => request,
                Some(step) => round_up(request, least, parse(step)),
            }
        }
        (None, Some(values)) => values.iter().map(parse).find(|value| request <= *value).unwrap_or(request),
        (None, None) => request,
    }
}

fn round_up(request: Quantity, least: Quantity, step: Quantity) -> Quantity {
    let (request, least, step) = (request.value(), least.value(), step.value().max(1));
    let steps = (request - least + step - 1) / step;
    binary(least + steps * step)
}

/// Returns an integer in binary form, as upstream writes rounded requests.
fn binary(value: i64) -> Quantity {
    const KIBI: i64 = 1024;
    let kibi = (value % KIBI == 0 && value != 0).then(|| Quantity::parse(&format!("{}Ki", value / KIBI)));
    kibi.flatten().unwrap_or(Quantity::from_integer(value))
}

fn violates_policy(amount: Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref().is_some_and(|default| parse(default) == amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        let is_off_step =
            |step: &QuantityText| (amount.value() - parse(&range.min).value()) % parse(step).value().max(1) != 0;
        return range.max.as_ref().is_some_and(|most| amount > parse(most))
            || range.step.as_ref().is_some_and(is_off_step);
    }
    match policy.valid_values.as_deref() {
        Some(values) if !values.is_empty() => values.iter().all(|value| parse(value) != amount),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(policy: Value, request: Option<&str>, expected: Option<&str>) {
        let capacity = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
        let device: Device = serde_json::from_value(json!({"name": "d", "capacity": capacity})).unwrap();
        let requests = request.map(|request| serde_json::from_value(json!({"requests": {"memory": request}})).unwrap());
        let fits = has_capacity(requests.as_ref(), &device, &[]);
        let amount = consumed_capacities(requests.as_ref(), &device)["memory"].to_string();
        assert_eq!(fits.then_some(amount.as_str()), expected, "{policy} {request:?}");
    }

    #[test]
    fn requests_are_rounded_by_policy() {
        check(Value::Null, None, Some("10Gi"));
        check(Value::Null, Some("3Gi"), Some("3Gi"));
        check(Value::Null, Some("11Gi"), None);
        check(json!({"default": "1Gi"}), None, Some("1Gi"));
        check(json!({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}), Some("2Gi"), Some("4Gi"));
        check(json!({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}), Some("5Gi"), None);
        let range = json!({"default": "2Gi", "validRange": {"min": "2Gi", "max": "6Gi", "step": "2Gi"}});
        check(range.clone(), Some("1Gi"), Some("2Gi"));
        check(range.clone(), Some("3Gi"), Some("4Gi"));
        check(range, Some("7Gi"), None);
    }

    #[test]
    fn shares_add_up_to_the_value() {
        let device = json!({"name": "d", "capacity": {"memory": {"value": "10Gi"}}});
        let device: Device = serde_json::from_value(device).unwrap();
        let requests: CapacityRequirements = serde_json::from_value(json!({"requests": {"memory": "4Gi"}})).unwrap();
        let taken = |size: &str| Capacities::from([("memory".to_owned(), Quantity::parse(size).unwrap())]);
        assert!(has_capacity(Some(&requests), &device, &[&taken("4Gi"), &taken("2Gi")]));
        assert!(!has_capacity(Some(&requests), &device, &[&taken("4Gi"), &taken("3Gi")]));
        let absent = serde_json::from_value(json!({"requests": {"cores": "1"}})).unwrap();
        assert!(!has_capacity(Some(&absent), &device, &[]));
    }
}
