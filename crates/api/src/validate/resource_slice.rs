//! Validation of ResourceSlices beyond the rule tables.

use super::{prelude::*, resource_name as resource};
use crate::quantity::Quantity;

const ATTRIBUTE_FIELDS: [&str; 8] = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];

pub fn validate_slice_place(spec: &FieldCursor, e: &mut ErrorList) {
    validate_node_selection(spec, &["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"], "", e);
}

/// Validates the number of devices, fewer with taints, list attributes or counters.
pub fn validate_slice_devices(devices: &FieldCursor, e: &mut ErrorList) {
    let listed = |device: &Value| {
        let attributes = device.get("attributes").and_then(Value::as_object).into_iter().flatten();
        attributes.into_iter().any(|(_, value)| ATTRIBUTE_FIELDS[4..].iter().any(|kind| value.get(kind).is_some()))
    };
    let advanced = devices.items().any(|device| {
        let device = device_fields(&device);
        device.get("taints").is_some() || device.get("consumesCounters").is_some() || listed(device)
    });
    let most = if advanced { 64 } else { 128 };
    if devices.len() > most {
        return devices.too_many(e, most);
    }
    check_block("SliceDevices", devices, e);
}

/// Returns the fields of a device; `v1beta1` nests them under `basic`.
fn device_fields<'v>(device: &FieldCursor<'v, '_>) -> &'v Value {
    let inner = device.get("basic").value;
    if inner.is_null() { device.value } else { inner }
}

/// Requires exactly one node selection field.
fn validate_node_selection(at: &FieldCursor, choices: &[&str], when: &str, e: &mut ErrorList) {
    let mut set = Vec::new();
    for field in choices {
        let given = at.get(field);
        if !given.exists() {
            continue;
        }
        match *field {
            "nodeName" if given.is_empty() => {
                let message = if when.is_empty() {
                    "must be either unset or set to a non-empty string"
                } else {
                    "must not be empty"
                };
                given.invalid_text(e, message);
                continue;
            }
            "nodeName" => given.check_format(e, names::check_dns_subdomain),
            "nodeSelector" => {
                check_block("NodeSelector", &given, e);
                let terms = given.get("nodeSelectorTerms");
                if when.is_empty() && terms.len() != 1 {
                    let shown = render_bad_value("core/v1.NodeSelectorTerm", terms.value);
                    terms.invalid_as(e, shown, "must have exactly one node selector term");
                }
            }
            _ if !given.is_true() => {
                given.invalid(e, "must be either unset or set to true");
                continue;
            }
            _ => {}
        }
        set.push(format!("`{field}`"));
    }
    let all: Vec<String> = choices.iter().map(|field| format!("`{field}`")).collect();
    let all = if when.is_empty() { all.join(", ") } else { "`nodeName`, `nodeSelector`, or `allNodes`".to_owned() };
    let message = format!("exactly one of {all} is required{when}");
    match set.len() {
        0 => at.required(e, message),
        1 => {}
        _ => {
            let many = if when.is_empty() { ", but multiple fields are set" } else { "" };
            at.invalid_as(e, format!("{{{}}}", set.join(", ")), format!("{message}{many}"));
        }
    }
}

pub fn validate_slice_device(at: &FieldCursor, e: &mut ErrorList) {
    at.get("name").check_format(e, names::check_dns_label);
    let inner = at.with_value(device_fields(at));
    let attributes = inner.get("attributes");
    let total = attributes.len() + inner.get("capacity").len();
    if total > 32 {
        at.invalid_as(e, total, "the total number of attributes and capacities must not exceed 32");
    }
    let lengths =
        |attribute: &FieldCursor| ATTRIBUTE_FIELDS[4..].iter().map(|kind| attribute.get(kind).len()).sum::<usize>();
    let values: usize = attributes.entries().map(|(_, attribute)| lengths(&attribute).max(1)).sum();
    if values > 48 {
        at.invalid_as(e, values, "the total number of attribute values must not exceed 48");
    }
    check_block("SliceDevice", &inner, e);
}

/// Validates the node selection of a device, allowed with `perDeviceNodeSelection` only.
pub fn validate_device_place(inner: &FieldCursor, e: &mut ErrorList) {
    let places = ["nodeName", "nodeSelector", "allNodes"];
    if inner.ancestor(2).get("perDeviceNodeSelection").is_true() {
        let when = " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        validate_node_selection(inner, &places, when, e);
    } else if places.iter().any(|field| inner.get(field).exists()) {
        let message = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
            the ResourceSlice spec";
        inner.invalid_as(e, Value::Null, message);
    }
}

pub fn validate_counter_names(counters: &FieldCursor, e: &mut ErrorList) {
    if counters.len() > 32 {
        counters.too_many(e, 32);
    }
    counters.entries().for_each(|(name, _)| counters.check_format_as(e, name, names::check_dns_label));
}

/// Requires exactly one value of an attribute.
pub fn validate_one_value(at: &FieldCursor, e: &mut ErrorList) {
    let message = "exactly one value must be specified";
    match ATTRIBUTE_FIELDS.iter().filter(|kind| at.value.get(kind).is_some()).count() {
        0 => at.invalid_as(e, "", message),
        1 => {}
        _ => at.invalid_struct(e, "resource/v1.DeviceAttribute", message),
    }
}

/// Validates a capacity's valid values: sorted, within the capacity, including the default.
pub fn validate_policy_values(capacity: &FieldCursor, e: &mut ErrorList) {
    let policy = capacity.get("requestPolicy");
    let (list, most, default) = (policy.get("validValues"), capacity.get("value"), policy.get("default"));
    for pair in 1..list.len() {
        if list.element(pair - 1).quantity() > list.element(pair).quantity() {
            list.element(pair).invalid(e, "values must be sorted in ascending order");
        }
    }
    if list.len() > 10 {
        list.too_many(e, 10);
    } else {
        for option in list.items().filter(|option| option.quantity() > most.quantity()) {
            option.invalid(e, format!("option is larger than capacity value: {}", most.text()));
        }
        let amount = |option: &FieldCursor| option.quantity().map_or(0, Quantity::value);
        list.for_each_duplicate(amount, |option, amount| option.duplicate(e, amount.to_string()));
    }
    let equal =
        |option: &FieldCursor| option.quantity().partial_cmp(&default.quantity()) == Some(std::cmp::Ordering::Equal);
    if list.len() > 10 || !list.items().any(|option| equal(&option)) {
        list.invalid_as(e, default.text(), "default value is not valid according to the requestPolicy");
    }
}

/// Validates a capacity's valid range: within the capacity, including the default.
pub fn validate_policy_range(capacity: &FieldCursor, e: &mut ErrorList) {
    let policy = capacity.get("requestPolicy");
    let (range, most, default) = (policy.get("validRange"), capacity.get("value"), policy.get("default"));
    let (min, max, step) = (range.get("min"), range.get("max"), range.get("step"));
    let mut over = |low: &FieldCursor, high: &FieldCursor, place: &FieldCursor, shown: &FieldCursor, what: &str| {
        if low.exists() && high.exists() && low.quantity() > high.quantity() {
            let other = if shown.text() == low.text() { high } else { low };
            place.invalid_as(e, shown.text(), format!("{what}: {}", other.text()));
        }
    };
    over(&min, &most, &min, &min, "min is larger than capacity value");
    over(&min, &default, &min, &default, "default is less than min");
    over(&min, &max, &max, &min, "min is larger than max");
    over(&max, &most, &max, &max, "max is larger than capacity value");
    over(&default, &max, &max, &default, "default is more than max");
    let (Some(first), Some(by)) = (min.quantity(), step.quantity()) else { return };
    let one = first.value().saturating_add(by.value());
    if most.quantity().is_some_and(|most| one > most.value()) {
        step.invalid(e, format!("one step {one} is larger than capacity value: {}", most.text()));
    }
    for value in [&default, &max].into_iter().filter(|value| value.exists()) {
        let added = value.quantity().map_or(0, Quantity::value).saturating_sub(first.value());
        if by.value() == 0 || added % by.value() != 0 {
            let message = format!("value is not a multiple of a given step ({}) from ({})", step.text(), min.text());
            step.invalid_as(e, value.text(), message);
        }
    }
}

/// Validates the mapping of a device to node-allocatable resources.
pub fn validate_resource_mapping(mapping: &FieldCursor, e: &mut ErrorList) {
    let (name, multiplier, key) = (mapping.name(), mapping.get("allocationMultiplier"), mapping.get("capacityKey"));
    if !resource::is_native_resource(name) {
        mapping.invalid_as(e, name, "must be a node allocatable resource name");
    }
    if !multiplier.exists() && !key.exists() {
        return mapping.invalid_as(e, "", "at least one of allocationMultiplier or capacityKey must be set");
    }
    if multiplier.exists() && multiplier.quantity_sign() <= 0 {
        multiplier.invalid(e, "must be positive");
    }
    if key.exists() && key.is_empty() {
        key.invalid(e, "capacityKey must not be an empty string");
    } else if key.exists() && mapping.ancestor(2).get("capacity").value.get(key.text()).is_none() {
        key.not_found(e);
    }
}
