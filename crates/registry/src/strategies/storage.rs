//! Claims and secrets, where they differ.

use api::{Value, meta};
use apiserver_core::User;
use serde_json::json;

use super::Strategy;

/// Claims: the old and the new way to name a source say the same.
pub struct Claim;

impl Strategy for Claim {
    fn prepare_create(&self, claim: &mut Value, _: &User) {
        same_source(claim);
    }

    fn prepare_update(&self, claim: &mut Value, current: &Value) {
        let before = &current["spec"];
        if before.get("dataSource").is_none() && before.get("dataSourceRef").is_some() {
            // It was made with a source that the old way could not name.
            return;
        }
        same_source(claim);
    }
}

fn same_source(claim: &mut Value) {
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

/// Secrets: an update that names no type keeps the one it has.
pub struct Secret;

impl Strategy for Secret {
    fn prepare_update(&self, secret: &mut Value, current: &Value) {
        if meta::string_at(secret, &["type"]).is_empty() {
            secret["type"] = current["type"].clone();
        }
    }
}
