//! Priority: resolves a pod's priority class to its value, and allows only one global default class.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "Priority",
    enabled_by_default: true,
    rules: &[
        ResourceRule::for_object("", "pods", Operation::WRITES),
        ResourceRule::for_object(GROUP, "priorityclasses", Operation::WRITES),
    ],
    construct: |_| Ok(Box::new(Priority)),
};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: (&str, &str, &str) = (GROUP, "v1", "priorityclasses");
const PREEMPT: &str = "PreemptLowerPriority";

struct Priority;

#[async_trait]
impl Plugin for Priority {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        match (attributes.targets_resource("", "pods"), attributes.old) {
            (false, _) => Ok(()),
            (true, Some(old)) => {
                keep_old_priority(pod, old);
                Ok(())
            }
            (true, None) => {
                let class = priority_class(attributes, pod).await?;
                let computed = ComputedPriority::from_class(class.as_ref());
                computed.apply(attributes, pod)
            }
        }
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, class: &Value) -> Result<(), Status> {
        if !attributes.targets_resource(GROUP, "priorityclasses") || class["globalDefault"] != true {
            return Ok(());
        }
        match default_priority_class(attributes).await? {
            Some(other) if attributes.operation == Operation::Create || meta::name(&other) != meta::name(class) => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    meta::name(&other)
                );
                Err(attributes.new_forbidden(class, why))
            }
            _ => Ok(()),
        }
    }
}

/// Keeps the priority fields of the old pod where an update omits them, as older clients do.
fn keep_old_priority(pod: &mut Value, old: &Value) {
    let spec = meta::field_mut(pod, "spec");
    for field in ["priority", "preemptionPolicy"] {
        if let (None, Some(value)) = (spec.get(field), meta::value_at(old, &["spec", field])) {
            spec.insert(field.into(), value.clone());
        }
    }
}

async fn priority_class(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let name = meta::string_at(pod, &["spec", "priorityClassName"]);
    if name.is_empty() {
        return default_priority_class(attributes).await;
    }
    match attributes.get_object(CLASSES, "", name).await? {
        None => Err(attributes.new_forbidden(pod, format!("no PriorityClass with name {name} was found"))),
        found => Ok(found),
    }
}

/// The global default class; of several, the one with the lowest value.
async fn default_priority_class(attributes: &AdmissionAttributes<'_>) -> Result<Option<Value>, Status> {
    let classes = attributes.list_objects(CLASSES, "").await?;
    let defaults = classes.into_iter().filter(|class| class["globalDefault"] == true);
    Ok(defaults.min_by_key(|class| meta::integer_at(class, &["value"])))
}

struct ComputedPriority<'a> {
    class: &'a str,
    priority: i64,
    policy: &'a str,
}

impl<'a> ComputedPriority<'a> {
    fn from_class(class: Option<&'a Value>) -> Self {
        match class {
            None => Self { class: "", priority: 0, policy: PREEMPT },
            Some(class) => Self {
                class: meta::name(class),
                priority: meta::integer_at(class, &["value"]),
                policy: meta::string_at(class, &["preemptionPolicy"]),
            },
        }
    }

    fn apply(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let given = meta::value_at(pod, &["spec", "priority"]).and_then(Value::as_i64);
        if let Some(given) = given.filter(|given| *given != self.priority) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {} from the given PriorityClass name",
                self.priority
            );
            return Err(attributes.new_forbidden(pod, why));
        }
        let given = meta::string_at(pod, &["spec", "preemptionPolicy"]);
        if !self.policy.is_empty() && !given.is_empty() && given != self.policy {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                self.policy
            );
            return Err(attributes.new_forbidden(pod, why));
        }
        let spec = meta::field_mut(pod, "spec");
        for (field, text) in [("priorityClassName", self.class), ("preemptionPolicy", self.policy)] {
            if !text.is_empty() {
                spec.insert(field.into(), text.into());
            }
        }
        spec.insert("priority".into(), self.priority.into());
        Ok(())
    }
}
