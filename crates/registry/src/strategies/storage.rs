//! Persistent volume claims and secrets.

use api::{Value, meta};
use apiserver_core::User;
use serde_json::json;

use super::Strategy;

/// The strategy of claims: keeps `dataSource` and `dataSourceRef` equal.
pub struct ClaimStrategy;

impl Strategy for ClaimStrategy {
    fn prepare_create(&self, claim: &mut Value, _: &User) {
        normalize_data_sources(claim);
    }

    fn prepare_update(&self, claim: &mut Value, current: &Value) {
        let before = &current["spec"];
        if before.get("dataSource").is_none() && before.get("dataSourceRef").is_some() {
            // The claim was created with a source that `dataSource` cannot express.
            return;
        }
        normalize_data_sources(claim);
    }
}

fn normalize_data_sources(claim: &mut Value) {
    let spec = meta::field_mut(claim, "spec");
    let namespaced = |source: &Value| !meta::string_at(source, &["namespace"]).is_empty();
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(source)) if !namespaced(&source) => {
            spec.insert("dataSource".into(), json!(source));
        }
        _ => {}
    }
}

/// The strategy of secrets: an update without a type keeps the current one.
pub struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn prepare_update(&self, secret: &mut Value, current: &Value) {
        if meta::string_at(secret, &["type"]).is_empty() {
            secret["type"] = current["type"].clone();
        }
    }
}
