//! API services: local ones are always available.

use api::{Value, meta};
use apiserver_core::{User, clock};
use serde_json::json;

use super::Strategy;

/// The strategy of API services.
pub struct ApiServiceStrategy;

impl Strategy for ApiServiceStrategy {
    fn prepare_create(&self, object: &mut Value, _: &User) {
        if object["spec"].get("service").is_none_or(Value::is_null) {
            let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": clock::now_in_seconds(),
                "reason": "Local", "message": "Local APIServices are always available"});
            meta::field_mut(object, "status").insert("conditions".into(), json!([condition]));
        }
    }
}
