//! What upstream fills in: static defaults from the tables, and those that are computed from other fields.
//!
//! [`apply`] walks an object by its type. The functions in `defaults/` are small and registered in one list.

mod core;
mod groups;
mod pod;

use std::sync::LazyLock;

use crate::{
    Map, Value, decode,
    quantity::Quantity,
    schema::{FieldPresence, Ty, TypeId, schema},
};

/// A default that depends on other fields of the same struct.
type Computed = fn(&mut Map);

/// By type, before the static defaults of the struct: what depends on a field not being given.
const BEFORE: &[(&str, Computed)] = &[
    ("apps/v1.StatefulSetUpdateStrategy", groups::stateful_strategy),
    ("batch/v1.JobSpec", groups::job_backoff),
    ("core/v1.NodeSpec", core::node_networks),
];

/// By type, after the static defaults of the struct and of everything in it.
const AFTER: &[(&str, Computed)] = &[
    ("core/v1.Container", pod::container),
    ("core/v1.EphemeralContainerCommon", pod::container),
    ("core/v1.EphemeralContainer", pod::container),
    ("core/v1.Pod", pod::pod),
    ("core/v1.PodSpec", pod::spec),
    ("core/v1.Volume", pod::volume),
    ("core/v1.Secret", core::secret),
    ("core/v1.Service", core::service),
    ("core/v1.Namespace", core::namespace),
    ("core/v1.NodeStatus", core::node_status),
    ("core/v1.LimitRangeItem", core::limit_range),
    ("core/v1.ReplicationController", core::replication_controller),
    ("apps/v1.DeploymentStrategy", groups::deployment_strategy),
    ("apps/v1.DaemonSet", groups::template_generation),
    ("apps/v1.DaemonSetUpdateStrategy", groups::daemon_strategy),
    ("batch/v1.Job", groups::job_labels),
    ("batch/v1.JobSpec", groups::job),
    ("autoscaling/v2.HorizontalPodAutoscalerSpec", groups::autoscaler),
    ("rbac/v1.Subject", groups::subject),
    ("networking/v1.NetworkPolicySpec", groups::policy_types),
    ("networking/v1.IngressClassParametersReference", groups::class_parameters),
    ("resource/v1.ExactDeviceRequest", groups::device_request),
    ("resource/v1.DeviceSubRequest", groups::device_request),
    ("resource/v1beta2.ExactDeviceRequest", groups::device_request),
    ("resource/v1beta2.DeviceSubRequest", groups::device_request),
    ("resource/v1beta1.DeviceRequest", groups::flat_device_request),
    ("resource/v1beta1.DeviceSubRequest", groups::device_request),
    ("apiextensions/v1.CustomResourceDefinition", groups::custom_resource),
];

/// Structs whose defaults a field of another struct does not get: a template of jobs stays as it was given.
const AS_GIVEN: &[(&str, &str)] = &[("batch/v1.JobTemplateSpec", "spec")];

/// Fills in everything that a client may leave out of an object of type `ty`.
pub fn apply(ty: TypeId, object: &mut Value) {
    if let Value::Object(map) = object {
        structure(ty, map, true);
    }
}

/// What is done for the structs of a type.
#[derive(Default)]
struct Plan {
    before: Option<Computed>,
    after: Option<Computed>,
    /// Positions of the fields that have a default, or something with defaults inside.
    fields: Vec<usize>,
}

/// The plans of all types, by their position.
static PLANS: LazyLock<Vec<Plan>> = LazyLock::new(plans);

fn plans() -> Vec<Plan> {
    let named = |list: &[(&str, Computed)], name: &str| list.iter().find(|(ty, _)| *ty == name).map(|(_, run)| *run);
    let types: Vec<_> = schema().types().map(|(_, ty)| ty).collect();
    let mut plans: Vec<Plan> = types
        .iter()
        .map(|ty| Plan { before: named(BEFORE, &ty.name), after: named(AFTER, &ty.name), fields: Vec::new() })
        .collect();
    // What is inside of what may go round in circles: until nothing is found any more.
    let mut grown = true;
    while grown {
        grown = false;
        for (at, ty) in types.iter().enumerate() {
            let has = |field: &&usize| ty.fields[**field].default.is_some() || reaches(&ty.fields[**field].ty, &plans);
            let fields: Vec<usize> = (0..ty.fields.len()).collect();
            let fields: Vec<usize> = fields.iter().filter(has).copied().collect();
            grown |= fields.len() > plans[at].fields.len();
            plans[at].fields = fields;
        }
    }
    plans
}

/// Whether anything is filled in within values of a type.
fn reaches(ty: &Ty, plans: &[Plan]) -> bool {
    match ty {
        Ty::Struct(id) => {
            let plan = &plans[id.position()];
            plan.before.is_some() || plan.after.is_some() || !plan.fields.is_empty()
        }
        Ty::Map(inner) if **inner == Ty::Quantity => true,
        Ty::List(inner) | Ty::Map(inner) => reaches(inner, plans),
        _ => false,
    }
}

fn structure(id: TypeId, map: &mut Map, own: bool) {
    let (ty, plan) = (schema().get(id), &PLANS[id.position()]);
    if let Some(before) = plan.before.filter(|_| own) {
        before(map);
    }
    for field in plan.fields.iter().map(|at| &ty.fields[*at]) {
        if let Some(default) = field.default.as_ref().filter(|_| own) {
            let unset = match map.get(field.name) {
                None => true,
                Some(value) => field.presence != FieldPresence::Pointer && decode::is_zero(value),
            };
            if unset {
                map.insert(field.name.to_owned(), filled(&field.ty, default));
            }
        }
        if reaches(&field.ty, &PLANS)
            && let Some(value) = map.get_mut(field.name)
        {
            inside(&field.ty, value, !AS_GIVEN.contains(&(ty.name.as_str(), field.name)));
        }
    }
    if let Some(after) = plan.after.filter(|_| own) {
        after(map);
    }
}

/// A default in canonical form; the tables' tests prove that it has one.
fn filled(ty: &Ty, default: &Value) -> Value {
    match ty {
        Ty::Struct(id) => decode::canonical(*id, default.clone()).map(|d| d.object).unwrap_or_else(|_| default.clone()),
        _ => default.clone(),
    }
}

fn inside(ty: &Ty, value: &mut Value, own: bool) {
    match (ty, value) {
        (Ty::Struct(id), Value::Object(map)) => structure(*id, map, own),
        (Ty::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| inside(inner, item, own)),
        (Ty::Map(inner), Value::Object(map)) if **inner == Ty::Quantity => map.values_mut().for_each(round),
        (Ty::Map(inner), Value::Object(map)) => map.values_mut().for_each(|item| inside(inner, item, own)),
        _ => {}
    }
}

/// Resources are counted in thousandths at the finest; what is finer is rounded up.
fn round(value: &mut Value) {
    let Some(exact) = value.as_str().filter(|text| text.ends_with(['n', 'u'])).and_then(Quantity::parse) else {
        return;
    };
    if let Some(rounded) = Quantity::parse(&format!("{}m", exact.millis())) {
        *value = rounded.to_string().into();
    }
}

/// The text of a field, or "".
fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(ty: &str, given: Value) -> Value {
        let ty = schema().type_named(ty).unwrap();
        let mut object = decode::canonical(ty, given).unwrap().object;
        apply(ty, &mut object);
        object
    }

    #[test]
    fn a_deployment_gets_what_upstream_gives_it() {
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
    fn a_secret_given_as_text_is_kept_as_data() {
        let secret = check("core/v1.Secret", json!({"data": {"a": "MQ=="}, "stringData": {"b": "2"}}));
        assert_eq!((&secret["data"], secret.get("stringData")), (&json!({"a": "MQ==", "b": "Mg=="}), None));
    }

    #[test]
    fn given_zeros_of_pointers_are_kept() {
        assert_eq!(check("apps/v1.Deployment", json!({"spec": {"replicas": 0}}))["spec"]["replicas"], 0);
    }
}
