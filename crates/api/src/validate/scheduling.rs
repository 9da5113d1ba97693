//! Validation of priority classes and runtime classes.

use super::{Errors, at::At, names, pod, selector};
use crate::Value;

const HIGHEST: i64 = 1_000_000_000;

/// The faults of a priority class.
pub(super) fn priority_class(new: &At, old: Option<&At>, e: &mut Errors) {
    let (value, preemption) = (new.get("value"), new.get("preemptionPolicy"));
    if let Some(old) = old {
        if value.int() != old.get("value").int() {
            value.forbidden(e, "may not be changed in an update.");
        }
        return preemption.unchanged(e, &old.get("preemptionPolicy"));
    }
    let meta = new.get("metadata");
    let name = meta.get("name");
    if name.text().starts_with("system-") {
        if let Some(why) = not_a_system_class(new, name.text()) {
            let message = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            name.forbidden(e, format!("{message}{why}"));
        }
    } else if value.int() > HIGHEST {
        value.forbidden(e, format!("maximum allowed value of a user defined priority is {HIGHEST}"));
    }
    if preemption.exists() {
        preemption.required_one_of(e, &["PreemptLowerPriority", "Never"]);
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

/// The faults of a runtime class.
pub(super) fn runtime_class(new: &At, old: Option<&At>, e: &mut Errors) {
    let handler = new.get("handler");
    if let Some(old) = old {
        if handler.text() != old.get("handler").text() {
            handler.invalid_text(e, super::at::IMMUTABLE);
        }
        return;
    }
    handler.required_form(e, names::label);
    let overhead = new.get("overhead");
    if overhead.exists() {
        pod::resources::overhead(&new.called("overhead", overhead.get("podFixed").value), e);
    }
    let scheduling = new.get("scheduling");
    selector::labels(&scheduling.get("nodeSelector"), e);
    let tolerations = scheduling.get("tolerations");
    pod::scheduling::tolerations(&tolerations, e);
    let mut seen: Vec<Vec<&Value>> = Vec::new();
    for toleration in tolerations.items() {
        let key: Vec<&Value> =
            ["key", "operator", "value", "effect"].iter().map(|field| toleration.get(field).value).collect();
        if seen.contains(&key) {
            let shown = super::render::internal("core/v1.Toleration", toleration.value);
            toleration.duplicate(e, super::error::Bad::Shown(shown));
        }
        seen.push(key);
    }
}
