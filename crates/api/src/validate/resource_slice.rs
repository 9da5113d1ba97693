//! Validation of slices: what devices a driver has on a node.

use super::{
    Errors,
    at::At,
    device::{attribute_name, limited, pool_name, unique},
    names, pod, selector, volume_source as source,
};
use crate::Value;

/// The faults of a slice.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let pool = spec.get("pool");
    source::csi_driver(&spec.get("driver"), e);
    pool_name(&pool.get("name"), e);
    if pool.get("resourceSliceCount").int() <= 0 {
        pool.get("resourceSliceCount").invalid_int(e, "must be greater than zero");
    }
    if pool.get("generation").int() < 0 {
        pool.get("generation").invalid(e, "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        let before = old.get("spec");
        pool.get("name").unchanged(e, &before.get("pool").get("name"));
        spec.get("driver").unchanged(e, &before.get("driver"));
        spec.get("nodeName").unchanged(e, &before.get("nodeName"));
    }
    let choices = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    one_place(&spec, &choices, "", e);
    if spec.get("sharedCounters").exists() && spec.get("devices").exists() {
        spec.invalid_as(e, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.get("devices");
    let advanced = devices.items().any(|device| {
        let device = basic(&device);
        device.get("taints").is_some() || device.get("consumesCounters").is_some()
    });
    limited(&devices, if advanced { 64 } else { 128 }, e);
    let per_device = spec.get("perDeviceNodeSelection").is_true();
    devices.items().for_each(|device| self::device(&device, per_device, e));
    unique(&devices, "name", e);
    let sets = spec.get("sharedCounters");
    limited(&sets, 8, e);
    for set in sets.items() {
        set.get("name").required_form(e, names::label);
        counters(&set.get("counters"), e);
    }
    unique(&sets, "name", e);
}

/// An older version has all of a device but its name one level down.
fn basic<'v>(device: &At<'v, '_>) -> &'v Value {
    let inner = device.get("basic").value;
    if inner.is_null() { device.value } else { inner }
}

/// Exactly one way to say where devices are.
fn one_place(at: &At, choices: &[&str], when: &str, e: &mut Errors) {
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
            "nodeName" => given.form(e, names::subdomain),
            "nodeSelector" => {
                selector::nodes(&given, false, e);
                let terms = given.get("nodeSelectorTerms");
                if when.is_empty() && terms.len() != 1 {
                    let shown = super::render::internal_list("core/v1.NodeSelectorTerm", terms.value);
                    terms.invalid_as(e, super::error::Bad::Shown(shown), "must have exactly one node selector term");
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
        _ => at.invalid_as(e, format!("{{{}}}", set.join(", ")), format!("{message}, but multiple fields are set")),
    }
}

fn device(at: &At, per_device: bool, e: &mut Errors) {
    at.get("name").form(e, names::label);
    let inner = at.holding(basic(at));
    let (attributes, capacity) = (inner.get("attributes"), inner.get("capacity"));
    let total = attributes.len() + capacity.len();
    if total > 32 {
        at.invalid_as(e, total, "the total number of attributes and capacities must not exceed 32");
    }
    for (name, attribute) in attributes.entries() {
        attribute_name(name, &attribute, e);
        value(&attribute, e);
    }
    let shared = inner.get("allowMultipleAllocations").is_true();
    for (name, amount) in capacity.entries() {
        attribute_name(name, &amount, e);
        if amount.get("requestPolicy").exists() && !shared {
            amount.get("requestPolicy").forbidden(e, "allowMultipleAllocations must be true");
        }
    }
    let taints = inner.get("taints");
    limited(&taints, 16, e);
    for taint in taints.items() {
        taint.get("key").form(e, names::qualified);
        taint.get("value").optional_form(e, names::label_value);
        pod::scheduling::device_effect(&taint.get("effect"), e);
    }
    let consumed = inner.get("consumesCounters");
    limited(&consumed, 2, e);
    for set in consumed.items() {
        set.get("counterSet").required_form(e, names::label);
        counters(&set.get("counters"), e);
    }
    unique(&consumed, "counterSet", e);
    let places = ["nodeName", "nodeSelector", "allNodes"];
    if per_device {
        let when = " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        one_place(&inner, &places, when, e);
    } else if places.iter().any(|field| inner.get(field).exists()) {
        let message = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
            the ResourceSlice spec";
        at.invalid_as(e, Value::Null, message);
    }
}

fn counters(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    limited(at, 32, e);
    for (name, counter) in at.entries() {
        names::label(name).into_iter().for_each(|fault| counter.invalid_as(e, name, fault));
    }
}

fn value(at: &At, e: &mut Errors) {
    let kinds = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];
    let count = kinds.iter().filter(|kind| at.get(kind).exists()).count();
    for kind in ["string", "version"] {
        if at.get(kind).text().len() > 64 {
            at.get(kind).too_long(e, 64);
        }
    }
    let version = at.get("version");
    if version.exists() && !is_version(version.text()) {
        version.invalid_text(e, "must be a string compatible with semver.org spec 2.0.0");
    }
    if count == 0 {
        at.invalid_as(e, "", "exactly one value must be specified");
    } else if count > 1 {
        at.invalid_internal(e, "resource/v1.DeviceAttribute", "exactly one value must be specified");
    }
}

/// Three numbers, and perhaps a pre-release and a build.
fn is_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && build.is_none_or(|build| build.split('.').all(word))
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| word(part) && (number(part) || !part.bytes().all(|c| c.is_ascii_digit())))
        })
}
