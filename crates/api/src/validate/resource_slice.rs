//! Slices of devices, as far as the tables cannot say what is right.

use super::{
    Errors,
    at::At,
    error::Bad,
    names,
    rules::{self, Functions},
};
use crate::Value;

pub(super) const FUNCTIONS: Functions =
    functions![slice_place, few_devices, slice_device, counter_name, attribute_value];

fn slice_place(spec: &At, e: &mut Errors) {
    one_place(spec, &["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"], "", e);
}

/// Devices that have taints or share counters are fewer.
fn few_devices(devices: &At, e: &mut Errors) {
    let advanced = devices.items().any(|device| {
        let device = basic(&device);
        device.get("taints").is_some() || device.get("consumesCounters").is_some()
    });
    let most = if advanced { 64 } else { 128 };
    if devices.len() > most {
        devices.too_many(e, most);
    }
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
                rules::check("NodeSelector", &given, e);
                let terms = given.get("nodeSelectorTerms");
                if when.is_empty() && terms.len() != 1 {
                    let shown = Bad::of("core/v1.NodeSelectorTerm", terms.value);
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
        _ => at.invalid_as(e, format!("{{{}}}", set.join(", ")), format!("{message}, but multiple fields are set")),
    }
}

fn slice_device(at: &At, e: &mut Errors) {
    at.get("name").form(e, names::label);
    let inner = at.holding(basic(at));
    let total = inner.get("attributes").len() + inner.get("capacity").len();
    if total > 32 {
        at.invalid_as(e, total, "the total number of attributes and capacities must not exceed 32");
    }
    rules::check("SliceDevice", &inner, e);
    let places = ["nodeName", "nodeSelector", "allNodes"];
    if at.up(2).get("perDeviceNodeSelection").is_true() {
        let when = " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        one_place(&inner, &places, when, e);
    } else if places.iter().any(|field| inner.get(field).exists()) {
        let message = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
            the ResourceSlice spec";
        at.invalid_as(e, Value::Null, message);
    }
}

fn counter_name(counter: &At, e: &mut Errors) {
    counter.form_as(e, counter.name(), names::label);
}

/// An attribute has one value.
fn attribute_value(at: &At, e: &mut Errors) {
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
        at.invalid_struct(e, "resource/v1.DeviceAttribute", "exactly one value must be specified");
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
