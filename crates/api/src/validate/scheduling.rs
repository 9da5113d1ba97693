//! Priority classes and runtime classes, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { priority_name distinct_tolerations claim_of_group };

const HIGHEST: i64 = 1_000_000_000;

/// Names of the system are for its own classes, and only these stand above all others.
fn priority_name(class: &At, e: &mut Errors) {
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
fn distinct_tolerations(list: &At, e: &mut Errors) {
    list.unique(
        |toleration| ["key", "operator", "value", "effect"].map(|field| toleration.text_of(field)),
        |toleration, _| toleration.duplicate(e, Bad::of("core/v1.Toleration", toleration.value)),
    );
}

/// The status of a claim is that of one of the group's.
fn claim_of_group(name: &At, e: &mut Errors) {
    let spec = name.whole().get("spec");
    if spec.get("resourceClaims").find("name", name.text()).is_none() {
        name.invalid_text(e, "must match the name of an entry in `spec.resourceClaims`");
    }
}
