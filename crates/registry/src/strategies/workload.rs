//! Workloads and nodes, where they differ.

use api::{
    Value,
    meta::{self, TEMPLATE_GENERATION_ANNOTATION},
};
use apiserver_core::User;

use super::{
    Strategy, specification,
    subresource::{keep, with_status},
};

/// Deployments: a changed annotation is a new generation too.
pub struct Deployment;

impl Strategy for Deployment {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
            || object["metadata"].get("annotations") != current["metadata"].get("annotations")
    }

    /// Labels are not the status's to change.
    fn through(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        let mut changed = with_status(object, current);
        keep(&mut changed["metadata"], &current["metadata"], &["labels"]);
        changed
    }
}

/// Daemon sets: an annotation of older days counts the changes of the template.
pub struct DaemonSet;

impl Strategy for DaemonSet {
    fn prepare_create(&self, set: &mut Value, _: &User) {
        let given = template_generation(set);
        set_template_generation(set, given.max(1));
    }

    fn prepare_update(&self, set: &mut Value, current: &Value) {
        let changed = set["spec"]["template"] != current["spec"]["template"];
        set_template_generation(set, template_generation(current) + i64::from(changed));
    }
}

fn template_generation(set: &Value) -> i64 {
    meta::string_at(set, &["metadata", "annotations", TEMPLATE_GENERATION_ANNOTATION]).parse().unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    let annotations = meta::metadata_mut(set).entry("annotations").or_insert_with(|| Value::Object(api::Map::new()));
    meta::object_mut(annotations).insert(TEMPLATE_GENERATION_ANNOTATION.into(), generation.to_string().into());
}

/// Endpoint slices: a changed label is a new generation too.
pub struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
            || object["metadata"].get("labels") != current["metadata"].get("labels")
    }
}

/// Nodes: a kubelet registers with its status.
pub struct KeepsStatus;

impl Strategy for KeepsStatus {
    fn keeps_status_on_create(&self) -> bool {
        true
    }
}

/// Priority classes: whatever changes in them, they stay what they were.
pub struct OneGeneration;

impl Strategy for OneGeneration {
    fn bumps_generation(&self, _: &Value, _: &Value) -> bool {
        false
    }
}
