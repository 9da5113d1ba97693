//! Constraints of a claim on the attributes of its devices, and taints of devices.

use k8s_openapi::api::resource::v1::{Device, DeviceConstraint, DeviceTaint, DeviceToleration};

use super::device_pools::NodeDevice;

/// Whether a name in a claim stands for a request or for the chosen one of its choices.
fn is_request(name: &str, request: &str) -> bool {
    name == request || request.split_once('/').is_some_and(|(parent, _)| parent == name)
}

fn covers(constraint: &DeviceConstraint, request: &str) -> bool {
    let requests = constraint.requests.as_deref().unwrap_or(&[]);
    requests.is_empty() || requests.iter().any(|name| is_request(name, request))
}

/// Returns an attribute by its full name as text with its type.
fn attribute(entry: &NodeDevice, name: &str) -> Option<String> {
    let attributes = entry.device()?.attributes.as_ref()?;
    let own = name.split_once('/').filter(|(domain, _)| *domain == entry.id.pool.driver).map(|(_, id)| id);
    let attribute = attributes.get(name).or_else(|| attributes.get(own?))?;
    Some(format!("{:?}{:?}{:?}{:?}", attribute.bool, attribute.int, attribute.string, attribute.version))
}

/// Whether a constraint allows a device for a request beside the chosen devices, given with their requests.
pub fn allows_device<'a>(
    constraint: &DeviceConstraint,
    (request, device): (&str, &NodeDevice),
    chosen: impl Iterator<Item = (&'a str, &'a NodeDevice)>,
) -> bool {
    if !covers(constraint, request) {
        return true;
    }
    let name = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
    let Some((name, value)) = name.and_then(|name| Some((name, attribute(device, name)?))) else { return false };
    let mut others = chosen.filter(|(request, _)| covers(constraint, request));
    others.all(|(_, other)| {
        let is_same = attribute(other, name).as_ref() == Some(&value);
        is_same == constraint.match_attribute.is_some()
    })
}

/// Whether a device has no taint that keeps claims without tolerations away.
pub fn is_tolerated(device: &Device, tolerations: Option<&Vec<DeviceToleration>>) -> bool {
    let taints = device.taints.iter().flatten();
    let mut effective = taints.filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    effective.all(|taint| tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let any_or = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    any_or(&toleration.effect, &taint.effect)
        && any_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or("Equal") {
            "Exists" => true,
            "Equal" | "" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            _ => false,
        }
}
