//! Volumes, claims and secrets, where they differ.

use api::{Value, meta};
use serde_json::json;

use super::Strategy;
use crate::{User, clock};

const SINCE: &str = "lastPhaseTransitionTime";

/// Persistent volumes: pending at first, and the time of the last change of phase is kept.
pub struct Volume;

impl Strategy for Volume {
    fn prepare_create(&self, volume: &mut Value, _: &User) {
        let status = meta::field_mut(volume, "status");
        status.insert("phase".into(), "Pending".into());
        status.insert(SINCE.into(), clock::seconds().into());
    }

    fn prepare_status(&self, volume: &mut Value, current: &Value) {
        let (new, old) = (&volume["status"], &current["status"]);
        let (same_phase, since) = (new["phase"] == old["phase"], new.get(SINCE));
        let time = match since {
            None if same_phase => old.get(SINCE).cloned(),
            since if !same_phase && (since.is_none() || since == old.get(SINCE)) => Some(clock::seconds().into()),
            _ => None,
        };
        if let Some(time) = time {
            meta::field_mut(volume, "status").insert(SINCE.into(), time);
        }
    }
}

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
    let namespaced = |source: &Value| !meta::text(source, &["namespace"]).is_empty();
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
        if meta::text(secret, &["type"]).is_empty() {
            secret["type"] = current["type"].clone();
        }
    }
}
