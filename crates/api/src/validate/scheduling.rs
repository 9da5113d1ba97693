//! Priority classes, runtime classes and leases, as far as the tables cannot say what is right.

use super::prelude::*;

const HIGHEST: i64 = 1_000_000_000;

/// Names of the system are for its own classes, and only these stand above all others.
pub fn priority_name(class: &At, e: &mut Errors) {
    let (meta, value) = (class.get("metadata"), class.get("value"));
    let name = meta.get("name");
    if name.text().starts_with("system-") {
        if let Some(why) = not_a_system_class(class, name.text()) {
            let message = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            name.forbidden(e, format!("{message}{why}"));
        }
    } else if value.int() > HIGHEST {
        value.forbidden(e, format!("maximum allowed value of a user defined priority is {HIGHEST}"));
    }
}

fn not_a_system_class(class: &At, name: &str) -> Option<String> {
    let value = match name {
        "system-cluster-critical" => 2 * HIGHEST,
        "system-node-critical" => 2 * HIGHEST + 1000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if class.get("value").int() != value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    let global = class.get("globalDefault").is_true();
    global.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// Tolerations differ in more than their seconds.
pub fn distinct_tolerations(list: &At, e: &mut Errors) {
    list.unique(
        |toleration| ["key", "operator", "value", "effect"].map(|field| toleration.text_of(field)),
        |toleration, _| toleration.duplicate(e, Bad::of("core/v1.Toleration", toleration.value)),
    );
}

/// Upstream tells a wrong strategy one step too deep.
pub fn lease_strategy(at: &At, e: &mut Errors) {
    let place = at.called("strategy", at.value);
    if at.text().contains('/') {
        place.form(e, names::qualified);
    } else {
        place.one_of(e, &["OldestEmulationVersion"]);
    }
}

/// The faults of the versions that a candidate has and emulates, and of how one is chosen by them.
pub fn candidate_versions(spec: &At, e: &mut Errors) {
    let (emulation, binary, plan) = (spec.get("emulationVersion"), spec.get("binaryVersion"), spec.get("strategy"));
    let parsed = |at: &At| version(at.text());
    if !emulation.is_empty() && parsed(&emulation).is_none() {
        emulation.invalid_text(e, "must be a valid semantic version");
    }
    if binary.require(e) && parsed(&binary).is_none() {
        binary.invalid_text(e, "must be a valid semantic version");
    }
    let zero = [0, 0, 0];
    let (low, high) = (parsed(&emulation).unwrap_or(zero), parsed(&binary).unwrap_or(zero));
    if !binary.is_empty() && !emulation.is_empty() && high < low {
        binary.invalid_text(e, "must be greater than or equal to `emulationVersion`");
    }
    if plan.require(e) {
        if plan.text() == "OldestEmulationVersion" && low == zero {
            emulation.required(e, "must be specified when `strategy` is 'OldestEmulationVersion'");
        }
        lease_strategy(&plan, e);
    }
}

/// The three numbers of a semantic version.
fn version(text: &str) -> Option<[u64; 3]> {
    let core = text.split(['-', '+']).next()?;
    let numbers = core.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}
