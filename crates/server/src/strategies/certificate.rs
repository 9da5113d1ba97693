//! Requests for certificates: who asked is the server's to say, and what was asked for never changes.

use api::{Value, meta};
use serde_json::json;

use super::Strategy;
use crate::User;

/// The strategy of certificate signing requests.
pub struct SigningRequest;

impl Strategy for SigningRequest {
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

    fn prepare_update(&self, request: &mut Value, current: &Value) {
        request["spec"] = current["spec"].clone();
    }
}
