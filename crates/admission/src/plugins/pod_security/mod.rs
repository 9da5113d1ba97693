//! PodSecurity: enforces the pod security level that a namespace's labels set. Workload resources are not rejected, but
//! get warnings and audit annotations for violations of their pod template.

mod baseline;
mod checks;
mod namespaces;
mod policy;
mod restricted;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use checks::{Pod, told, violations};
use policy::{Bound, Level, Policy};

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

const WRITES: &[Operation] = &[Operation::Create, Operation::Update];

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "PodSecurity",
    on: true,
    about: &[
        ResourceRule {
            resource: ("", "pods"),
            subresources: &["", "ephemeralcontainers", "resize"],
            operations: WRITES,
        },
        ResourceRule::object("", "namespaces", WRITES),
        ResourceRule::object("", "replicationcontrollers", WRITES),
        ResourceRule::object("", "podtemplates", WRITES),
        ResourceRule::object("apps", "replicasets", WRITES),
        ResourceRule::object("apps", "deployments", WRITES),
        ResourceRule::object("apps", "statefulsets", WRITES),
        ResourceRule::object("apps", "daemonsets", WRITES),
        ResourceRule::object("batch", "jobs", WRITES),
        ResourceRule::object("batch", "cronjobs", WRITES),
    ],
    make: |parts| Ok(Box::new(PodSecurity::new(parts.config)?)),
};

struct PodSecurity {
    defaults: Policy,
    exempt: Exempt,
}

/// The configured exemptions.
#[derive(Default)]
struct Exempt {
    users: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

#[async_trait]
impl Plugin for PodSecurity {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        if attributes.is_of("", "namespaces") {
            return self.validate_namespace(attributes, object).await;
        }
        if self.exempt.namespaces.iter().any(|name| name == attributes.namespace()) {
            annotate(attributes, "exempt", "namespace");
            return Ok(());
        }
        if self.exempt.users.contains(&attributes.user().name) {
            annotate(attributes, "exempt", "user");
            return Ok(());
        }
        let namespace = attributes.find(("", "v1", "namespaces"), "", attributes.namespace()).await?;
        let labels = namespace.as_ref().and_then(|namespace| meta::value_at(namespace, &["metadata", "labels"]));
        let (policy, faults) = self.defaults.of_labels(labels.unwrap_or(&Value::Null));
        if policy.is_free() && faults.is_empty() {
            if attributes.is_of("", "pods") {
                annotate(attributes, "enforce-policy", &policy.enforce.to_string());
            }
            return Ok(());
        }
        let Some(pod) = pod_of(attributes, object) else { return Ok(()) };
        let is_pod = attributes.is_of("", "pods");
        if is_pod && attributes.old.is_some_and(|old| !changes_images(object, old)) {
            return Ok(());
        }
        if !faults.is_empty() {
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let text = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
            annotate(attributes, "error", &format!("Failed to parse policy: {text}"));
        }
        self.evaluate(attributes, object, policy, &pod, is_pod)
    }
}

impl PodSecurity {
    fn new(config: Option<&Value>) -> Result<Self, String> {
        let Some(config) = config else { return Ok(Self { defaults: Policy::default(), exempt: Exempt::default() }) };
        let texts = |field: &str| {
            let list = meta::list_at(config, &["exemptions", field]).iter();
            list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>()
        };
        let exempt = Exempt {
            users: texts("usernames"),
            namespaces: texts("namespaces"),
            runtime_classes: texts("runtimeClasses"),
        };
        Ok(Self { defaults: Policy::defaults(config)?, exempt })
    }

    fn evaluate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        policy: Policy,
        pod: &Pod<'_>,
        enforce: bool,
    ) -> Result<(), Status> {
        let class = meta::string_at(pod.spec, &["runtimeClassName"]);
        if self.exempt.runtime_classes.iter().any(|exempt| exempt == class) {
            annotate(attributes, "exempt", "runtimeClass");
            return Ok(());
        }
        let beyond = |bound: Bound| {
            let found = violations(bound, pod);
            (!found.is_empty()).then(|| format!("violate PodSecurity {:?}: {}", bound.to_string(), told(&found)))
        };
        let refused = if enforce { beyond(policy.enforce) } else { None };
        if enforce {
            annotate(attributes, "enforce-policy", &policy.enforce.to_string());
        }
        if let Some(text) = beyond(policy.audit) {
            annotate(attributes, "audit-violations", &format!("would {text}"));
        }
        if let Some(text) = refused {
            // Only the verb form differs between the rejection and the audit annotation.
            let why = text.replacen("violate ", "violates ", 1);
            return Err(attributes.forbidden(object, why));
        }
        if let Some(text) = beyond(policy.warn) {
            attributes.notes().add_warning(format!("would {text}"));
        }
        Ok(())
    }
}

fn annotate(attributes: &AdmissionAttributes<'_>, key: &str, value: &str) {
    attributes.notes().annotate_audit(policy::label(key), value);
}

/// The pod itself, or the pod template of a workload.
fn pod_of<'a>(attributes: &AdmissionAttributes<'_>, object: &'a Value) -> Option<Pod<'a>> {
    let holder = match attributes.resource().name {
        "pods" => Some(object),
        "podtemplates" => meta::value_at(object, &["template"]),
        "cronjobs" => meta::value_at(object, &["spec", "jobTemplate", "spec", "template"]),
        _ => meta::value_at(object, &["spec", "template"]),
    }?;
    let part = |field: &str| holder.get(field).unwrap_or(&Value::Null);
    Some(Pod { metadata: part("metadata"), spec: part("spec") })
}

/// Whether an update changes container images; other updates of a pod are not evaluated again.
fn changes_images(pod: &Value, old: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<(String, String)> {
        let text = |container: &Value, field: &str| meta::string_at(container, &[field]).to_owned();
        let containers = meta::list_at(pod, &["spec", list]).iter();
        containers.map(|container| (text(container, "name"), text(container, "image"))).collect()
    };
    let known = images(old, "ephemeralContainers");
    ["containers", "initContainers"].iter().any(|list| {
        let (now, then) = (images(pod, list), images(old, list));
        now.len() != then.len() || now.iter().zip(&then).any(|(now, then)| now.1 != then.1)
    }) || images(pod, "ephemeralContainers").iter().any(|container| !known.contains(container))
}
