//! Validation of PriorityClasses, RuntimeClasses and LeaseCandidates beyond the rule tables.

use super::prelude::*;

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// Validates name and value: the `system-` prefix and higher values are reserved.
pub fn validate_priority_name(class: &FieldCursor, e: &mut ErrorList) {
    let (meta, value) = (class.get("metadata"), class.get("value"));
    let name = meta.get("name");
    if name.text().starts_with("system-") {
        if let Some(why) = system_class_error(class, name.text()) {
            let message = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            name.forbidden(e, format!("{message}{why}"));
        }
    } else if value.int() > HIGHEST_USER_PRIORITY {
        value.forbidden(e, format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"));
    }
}

fn system_class_error(class: &FieldCursor, name: &str) -> Option<String> {
    let value = match name {
        "system-cluster-critical" => 2 * HIGHEST_USER_PRIORITY,
        "system-node-critical" => 2 * HIGHEST_USER_PRIORITY + 1000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if class.get("value").int() != value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    let global = class.get("globalDefault").is_true();
    global.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// Requires tolerations to differ apart from their seconds.
pub fn validate_distinct_tolerations(list: &FieldCursor, e: &mut ErrorList) {
    list.for_each_duplicate(
        |toleration| ["key", "operator", "value", "effect"].map(|field| toleration.text_at(field)),
        |toleration, _| toleration.duplicate(e, render_bad_value("core/v1.Toleration", toleration.value)),
    );
}

/// Validates a lease strategy; upstream reports errors one level too deep.
pub fn validate_lease_strategy(at: &FieldCursor, e: &mut ErrorList) {
    let place = at.child_as("strategy", at.value);
    if at.text().contains('/') {
        place.check_format(e, names::check_qualified_name);
    } else {
        place.require_one_of(e, &["OldestEmulationVersion"]);
    }
}

/// Validates emulation and binary version and the strategy of a LeaseCandidate.
pub fn validate_candidate_versions(spec: &FieldCursor, e: &mut ErrorList) {
    let (emulation, binary, plan) = (spec.get("emulationVersion"), spec.get("binaryVersion"), spec.get("strategy"));
    let parsed = |at: &FieldCursor| parse_semver(at.text());
    if !emulation.is_empty() && parsed(&emulation).is_none() {
        emulation.invalid_text(e, "must be a valid semantic version");
    }
    if binary.require_value(e) && parsed(&binary).is_none() {
        binary.invalid_text(e, "must be a valid semantic version");
    }
    let zero = [0, 0, 0];
    let (low, high) = (parsed(&emulation).unwrap_or(zero), parsed(&binary).unwrap_or(zero));
    if !binary.is_empty() && !emulation.is_empty() && high < low {
        binary.invalid_text(e, "must be greater than or equal to `emulationVersion`");
    }
    if plan.require_value(e) {
        if plan.text() == "OldestEmulationVersion" && low == zero {
            emulation.required(e, "must be specified when `strategy` is 'OldestEmulationVersion'");
        }
        validate_lease_strategy(&plan, e);
    }
}

/// Parses the three numbers of a semantic version.
fn parse_semver(text: &str) -> Option<[u64; 3]> {
    let core = text.split(['-', '+']).next()?;
    let numbers = core.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}
