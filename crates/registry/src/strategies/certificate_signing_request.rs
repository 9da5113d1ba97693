//! Certificate signing requests: `approval` sets the approval conditions, `status` the certificate.

use api::{Value, meta};
use apiserver_core::{User, clock};
use serde_json::json;

use super::{
    Strategy,
    subresource::{copy_fields, with_status},
};

/// The strategy of certificate signing requests.
pub struct SigningRequestStrategy;

impl Strategy for SigningRequestStrategy {
    fn prepare_create(&self, request: &mut Value, user: &User) {
        let spec = meta::field_mut(request, "spec");
        for field in ["uid", "groups", "extra"] {
            spec.remove(field);
        }
        spec.insert("username".into(), user.name.clone().into());
        if !user.uid.is_empty() {
            spec.insert("uid".into(), user.uid.clone().into());
        }
        if !user.groups.is_empty() {
            spec.insert("groups".into(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.insert("extra".into(), json!(user.extra));
        }
    }

    /// The spec is immutable.
    fn prepare_update(&self, request: &mut Value, current: &Value) {
        copy_fields(request, current, &["spec"]);
    }

    fn update_subresource(&self, subresource: &str, object: Value, current: &Value) -> Value {
        let mut request = with_status(object, current);
        if subresource == "approval" {
            let mut status = current["status"].clone();
            copy_fields(&mut status, &request["status"], &["conditions"]);
            request["status"] = status;
        } else {
            for kind in ["Approved", "Denied"] {
                restore_conditions(&mut request, current, kind);
            }
        }
        set_times(&mut request, current);
        request
    }
}

/// Restores the conditions of a type. If their number changed, they are left for validation to reject.
fn restore_conditions(request: &mut Value, current: &Value, kind: &str) {
    let of_kind = |condition: &&Value| condition["type"] == kind;
    let old: Vec<&Value> = meta::list_at(current, &["status", "conditions"]).iter().filter(of_kind).collect();
    let conditions = request["status"].get_mut("conditions").and_then(Value::as_array_mut);
    let new: Vec<&mut Value> = conditions.into_iter().flatten().filter(|condition| condition["type"] == kind).collect();
    if new.len() == old.len() {
        new.into_iter().zip(old).for_each(|(new, old)| *new = old.clone());
    }
}

/// Sets missing `lastUpdateTime` and `lastTransitionTime` of conditions.
fn set_times(request: &mut Value, current: &Value) {
    let now = Value::from(clock::now_in_seconds());
    let before = meta::list_at(current, &["status", "conditions"]);
    let conditions = request["status"].get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if !condition["lastUpdateTime"].is_string() {
            condition["lastUpdateTime"] = now.clone();
        }
        if !condition["lastTransitionTime"].is_string() {
            let same = |old: &&Value| {
                old["type"] == condition["type"]
                    && old["status"] == condition["status"]
                    && old["lastTransitionTime"].is_string()
            };
            let time = before.iter().find(same).map_or(&now, |old| &old["lastTransitionTime"]).clone();
            condition["lastTransitionTime"] = time;
        }
    }
}
