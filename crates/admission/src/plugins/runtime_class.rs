//! RuntimeClass: sets the overhead and the scheduling constraints of a pod's runtime class.

use api::{Value, meta, quantity::Quantity, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "RuntimeClass",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("", "pods", &[Operation::Create])],
    construct: |_| Ok(Box::new(RuntimeClass)),
};

const OTHER: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

struct RuntimeClass;

#[async_trait]
impl Plugin for RuntimeClass {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let Some(class) = pod_runtime_class(attributes, pod).await? else { return Ok(()) };
        if let Some(overhead) = pod_fixed_overhead(&class) {
            let given = meta::value_at(pod, &["spec", "overhead"]).filter(|given| **given != json!({}));
            if given.is_some_and(|given| !overheads_equal(given, overhead)) {
                return Err(attributes.new_forbidden(pod, OTHER));
            }
            meta::field_mut(pod, "spec").insert("overhead".into(), overhead.clone());
        }
        match meta::value_at(&class, &["scheduling"]) {
            Some(scheduling) => apply_scheduling(attributes, pod, scheduling),
            None => Ok(()),
        }
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let class = pod_runtime_class(attributes, pod).await?;
        let given = meta::value_at(pod, &["spec", "overhead"]);
        match (class.as_ref().and_then(pod_fixed_overhead), given) {
            (Some(wanted), Some(given)) if overheads_equal(wanted, given) => Ok(()),
            (Some(_), _) => Err(attributes.new_forbidden(pod, OTHER)),
            (None, None) => Ok(()),
            (None, Some(_)) => {
                let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                Err(attributes.new_forbidden(pod, why))
            }
        }
    }
}

async fn pod_runtime_class(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let Some(name) = meta::value_at(pod, &["spec", "runtimeClassName"]).and_then(Value::as_str) else {
        return Ok(None);
    };
    match attributes.get_object(("node.k8s.io", "v1", "runtimeclasses"), "", name).await? {
        None => Err(attributes.new_forbidden(pod, format!("pod rejected: RuntimeClass {name:?} not found"))),
        found => Ok(found),
    }
}

/// The `overhead.podFixed` of a runtime class; `None` without `overhead`.
fn pod_fixed_overhead(class: &Value) -> Option<&Value> {
    meta::value_at(class, &["overhead"])?;
    Some(meta::value_at(class, &["overhead", "podFixed"]).unwrap_or(&Value::Null))
}

fn overheads_equal(a: &Value, b: &Value) -> bool {
    let amounts = |list: &Value| -> Vec<(String, Option<Quantity>)> {
        let list = list.as_object().into_iter().flatten();
        let mut list: Vec<_> = list.map(|(name, amount)| (name.clone(), pod::parse_quantity(amount))).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    };
    let (a, b) = (amounts(a), amounts(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0 && a.1.partial_cmp(&b.1).is_some_and(|o| o.is_eq()))
}

fn apply_scheduling(attributes: &AdmissionAttributes<'_>, pod: &mut Value, scheduling: &Value) -> Result<(), Status> {
    for (key, wanted) in meta::value_at(scheduling, &["nodeSelector"]).and_then(Value::as_object).into_iter().flatten()
    {
        let given = meta::value_at(pod, &["spec", "nodeSelector", key]);
        if let Some(given) = given.filter(|given| *given != wanted) {
            let (wanted, given) = (wanted.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(attributes.new_forbidden(pod, why));
        }
        let selector = meta::field_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
        meta::object_mut(selector).insert(key.clone(), wanted.clone());
    }
    let merged = pod::merge_tolerations(
        meta::list_at(pod, &["spec", "tolerations"]),
        meta::list_at(scheduling, &["tolerations"]),
    );
    if !merged.is_empty() {
        meta::field_mut(pod, "spec").insert("tolerations".into(), merged.into());
    }
    Ok(())
}
