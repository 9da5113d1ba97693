//! Workloads, nodes, endpoint slices and priority classes.

use api::{
    Value,
    meta::{self, TEMPLATE_GENERATION_ANNOTATION},
};
use apiserver_core::User;

use super::{
    Strategy, spec_fields,
    subresource::{copy_fields, with_status},
};

/// The strategy of deployments: a changed annotation bumps the generation too.
pub struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        spec_fields(object) != spec_fields(current)
            || object["metadata"].get("annotations") != current["metadata"].get("annotations")
    }

    /// A status update keeps the labels.
    fn update_subresource(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        let mut changed = with_status(object, current);
        copy_fields(&mut changed["metadata"], &current["metadata"], &["labels"]);
        changed
    }
}

/// The strategy of daemon sets: a deprecated annotation counts template changes.
pub struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
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

/// The strategy of stateful sets: claim templates name their kind.
pub struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn prepare_create(&self, set: &mut Value, _: &User) {
        set_claim_template_kinds(set);
    }

    fn prepare_update(&self, set: &mut Value, _: &Value) {
        set_claim_template_kinds(set);
    }
}

fn set_claim_template_kinds(set: &mut Value) {
    let templates = set.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten().filter_map(Value::as_object_mut) {
        template.insert("apiVersion".into(), "v1".into());
        template.insert("kind".into(), "PersistentVolumeClaim".into());
    }
}

/// The strategy of endpoint slices: a changed label bumps the generation too.
pub struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        spec_fields(object) != spec_fields(current)
            || object["metadata"].get("labels") != current["metadata"].get("labels")
    }
}

/// The strategy of nodes: a kubelet registers with its status.
pub struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn keeps_status_on_create(&self) -> bool {
        true
    }
}

/// The strategy of priority classes: the generation never changes.
pub struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn bumps_generation(&self, _: &Value, _: &Value) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claim_templates_name_their_kind() {
        let mut created = json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        StatefulSetStrategy.prepare_create(&mut created, &User::default());
        assert_eq!(created["spec"]["volumeClaimTemplates"][0]["kind"], "PersistentVolumeClaim");
    }
}
