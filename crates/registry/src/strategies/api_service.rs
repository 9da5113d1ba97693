//! API services: those that this server answers itself are always available.

use api::{Value, meta};
use apiserver_core::{User, clock};
use serde_json::json;

use super::Strategy;

/// The strategy of API services.
pub struct ApiService;

impl Strategy for ApiService {
    fn prepare_create(&self, object: &mut Value, _: &User) {
        if object["spec"].get("service").is_none_or(Value::is_null) {
            let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": clock::seconds(),
                "reason": "Local", "message": "Local APIServices are always available"});
            meta::field_mut(object, "status").insert("conditions".into(), json!([condition]));
        }
    }
}
