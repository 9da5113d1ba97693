//! Defaulting: static defaults of the schema, and defaults computed from other fields.
//!
//! [`apply_defaults`] walks an object by its type. Computed defaults are functions in `defaults/`, registered by type below.

mod core_group;
mod other_groups;
mod pod;

use std::sync::LazyLock;

use crate::{
    Map, Value, decode,
    quantity::Quantity,
    schema::{FieldPresence, FieldType, TypeId, schema},
};

/// A default computed from other fields of the struct.
type ComputedDefault = fn(&mut Map);

/// Computed defaults by type, before the static defaults of the struct: those that depend on unset fields.
const BEFORE_STATIC: &[(&str, ComputedDefault)] = &[
    ("apps/v1.StatefulSetUpdateStrategy", other_groups::default_stateful_set_strategy),
    ("batch/v1.JobSpec", other_groups::default_backoff_limit),
    ("core/v1.NodeSpec", core_group::default_pod_cidrs),
];

/// Computed defaults by type, after the static defaults of the struct and its content.
const AFTER_STATIC: &[(&str, ComputedDefault)] = &[
    ("core/v1.Container", pod::default_container),
    ("core/v1.EphemeralContainerCommon", pod::default_container),
    ("core/v1.EphemeralContainer", pod::default_container),
    ("core/v1.Pod", pod::default_pod),
    ("core/v1.PodSpec", pod::default_service_account),
    ("core/v1.Volume", pod::default_volume),
    ("core/v1.Secret", core_group::default_secret),
    ("core/v1.Service", core_group::default_service),
    ("core/v1.Namespace", core_group::default_namespace),
    ("core/v1.NodeStatus", core_group::default_node_status),
    ("core/v1.LimitRangeItem", core_group::default_limit_range_item),
    ("core/v1.ReplicationController", core_group::default_replication_controller),
    ("apps/v1.DeploymentStrategy", other_groups::default_deployment_strategy),
    ("apps/v1.DaemonSet", other_groups::default_template_generation),
    ("apps/v1.DaemonSetUpdateStrategy", other_groups::default_daemon_set_strategy),
    ("batch/v1.Job", other_groups::default_job_labels),
    ("batch/v1.JobSpec", other_groups::default_job_spec),
    ("autoscaling/v2.HorizontalPodAutoscalerSpec", other_groups::default_autoscaler),
    ("rbac/v1.Subject", other_groups::default_subject),
    ("networking/v1.NetworkPolicySpec", other_groups::default_policy_types),
    ("resource/v1.ExactDeviceRequest", other_groups::default_device_request),
    ("resource/v1.DeviceSubRequest", other_groups::default_device_request),
    ("resource/v1beta2.ExactDeviceRequest", other_groups::default_device_request),
    ("resource/v1beta2.DeviceSubRequest", other_groups::default_device_request),
    ("resource/v1beta1.DeviceRequest", other_groups::default_flat_device_request),
    ("resource/v1beta1.DeviceSubRequest", other_groups::default_device_request),
    ("apiextensions/v1.CustomResourceDefinition", other_groups::default_custom_resource_definition),
];

/// Fields whose struct is not defaulted: the job of a CronJob's template stays as requested.
const UNDEFAULTED_FIELDS: &[(&str, &str)] = &[("batch/v1.JobTemplateSpec", "spec")];

/// Applies all defaults to an object of type `ty`.
pub fn apply_defaults(ty: TypeId, object: &mut Value) {
    if let Value::Object(map) = object {
        default_struct(ty, map, true);
    }
}

/// The defaulting of a struct type.
#[derive(Default)]
struct DefaultingPlan {
    before: Option<ComputedDefault>,
    after: Option<ComputedDefault>,
    /// Positions of the fields with a default, or with defaults inside.
    fields: Vec<usize>,
}

/// The plans of all types, by position.
static PLANS: LazyLock<Vec<DefaultingPlan>> = LazyLock::new(build_plans);

fn build_plans() -> Vec<DefaultingPlan> {
    let named =
        |list: &[(&str, ComputedDefault)], name: &str| list.iter().find(|(ty, _)| *ty == name).map(|(_, run)| *run);
    let types: Vec<_> = schema().types().map(|(_, ty)| ty).collect();
    let mut plans: Vec<DefaultingPlan> = types
        .iter()
        .map(|ty| DefaultingPlan {
            before: named(BEFORE_STATIC, &ty.name),
            after: named(AFTER_STATIC, &ty.name),
            fields: Vec::new(),
        })
        .collect();
    // Types may be recursive: iterate to the fixed point.
    let mut grown = true;
    while grown {
        grown = false;
        for (at, ty) in types.iter().enumerate() {
            let has =
                |field: &&usize| ty.fields[**field].default.is_some() || has_defaults(&ty.fields[**field].ty, &plans);
            let fields: Vec<usize> = (0..ty.fields.len()).collect();
            let fields: Vec<usize> = fields.iter().filter(has).copied().collect();
            grown |= fields.len() > plans[at].fields.len();
            plans[at].fields = fields;
        }
    }
    plans
}

/// Whether values of a type contain defaults.
fn has_defaults(ty: &FieldType, plans: &[DefaultingPlan]) -> bool {
    match ty {
        FieldType::Struct(id) => {
            let plan = &plans[id.position()];
            plan.before.is_some() || plan.after.is_some() || !plan.fields.is_empty()
        }
        FieldType::Map(inner) if **inner == FieldType::Quantity => true,
        FieldType::List(inner) | FieldType::Map(inner) => has_defaults(inner, plans),
        _ => false,
    }
}

fn default_struct(id: TypeId, map: &mut Map, own: bool) {
    let (ty, plan) = (schema().get(id), &PLANS[id.position()]);
    if let Some(before) = plan.before.filter(|_| own) {
        before(map);
    }
    for field in plan.fields.iter().map(|at| &ty.fields[*at]) {
        if let Some(default) = field.default.as_ref().filter(|_| own) {
            let unset = match map.get(field.name) {
                None | Some(Value::Null) => true,
                Some(value) => field.presence != FieldPresence::Pointer && decode::is_zero(value),
            };
            if unset && decode::is_written(field, default) {
                map.insert(field.name.to_owned(), canonical_default(&field.ty, default));
            }
        }
        if has_defaults(&field.ty, &PLANS)
            && let Some(value) = map.get_mut(field.name)
        {
            default_value(&field.ty, value, !UNDEFAULTED_FIELDS.contains(&(ty.name.as_str(), field.name)));
        }
    }
    if let Some(after) = plan.after.filter(|_| own) {
        after(map);
    }
}

/// Canonicalizes a default; the tests of the tables prove that it decodes.
fn canonical_default(ty: &FieldType, default: &Value) -> Value {
    match ty {
        FieldType::Struct(id) => {
            decode::canonicalize(*id, default.clone()).map(|d| d.object).unwrap_or_else(|_| default.clone())
        }
        _ => default.clone(),
    }
}

fn default_value(ty: &FieldType, value: &mut Value, own: bool) {
    match (ty, value) {
        (FieldType::Struct(id), Value::Object(map)) => default_struct(*id, map, own),
        (FieldType::List(inner), Value::Array(items)) => {
            items.iter_mut().for_each(|item| default_value(inner, item, own))
        }
        (FieldType::Map(inner), Value::Object(map)) if **inner == FieldType::Quantity => {
            map.values_mut().for_each(round_to_milli)
        }
        (FieldType::Map(inner), Value::Object(map)) => {
            map.values_mut().for_each(|item| default_value(inner, item, own))
        }
        _ => {}
    }
}

/// Rounds resource quantities up to thousandths.
fn round_to_milli(value: &mut Value) {
    let Some(exact) = value.as_str().filter(|text| text.ends_with(['n', 'u'])).and_then(Quantity::parse) else {
        return;
    };
    if let Some(rounded) = Quantity::parse(&format!("{}m", exact.millis())) {
        *value = rounded.to_string().into();
    }
}

/// Returns a string field, or "".
fn string_field<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(ty: &str, given: Value) -> Value {
        let ty = schema().type_named(ty).unwrap();
        let mut object = decode::canonicalize(ty, given).unwrap().object;
        apply_defaults(ty, &mut object);
        object
    }

    #[test]
    fn deployment_gets_upstreams_defaults() {
        let object = check(
            "apps/v1.Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}),
        );
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        let spec = &object["spec"]["template"]["spec"];
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(spec["securityContext"], json!({}));
        assert_eq!(spec.get("enableServiceLinks"), None, "only pods get it");
    }

    #[test]
    fn field_that_is_written_as_null_gets_its_default() {
        let given = json!({"spec": {"controller": "c", "parameters": {"kind": "P", "name": "x"}}});
        assert_eq!(check("networking/v1.IngressClass", given)["spec"]["parameters"]["scope"], "Cluster");
    }

    #[test]
    fn secret_string_data_becomes_data() {
        let secret = check("core/v1.Secret", json!({"data": {"a": "MQ=="}, "stringData": {"b": "2"}}));
        assert_eq!((&secret["data"], secret.get("stringData")), (&json!({"a": "MQ==", "b": "Mg=="}), None));
    }

    #[test]
    fn explicit_zero_of_a_pointer_is_kept() {
        assert_eq!(check("apps/v1.Deployment", json!({"spec": {"replicas": 0}}))["spec"]["replicas"], 0);
    }
}
