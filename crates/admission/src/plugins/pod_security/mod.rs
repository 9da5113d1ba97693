//! PodSecurity: enforces the pod security level that a namespace's labels set. Workload resources are not rejected, but
//! get warnings and audit annotations for violations of their pod template.

mod baseline;
mod checks;
mod evaluator;
mod namespaces;
mod policy;
mod restricted;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use authz::aggregate_errors;
use checks::EvaluatedPod;
use evaluator::{evaluate_pod, format_violations};
use policy::{LevelVersion, PodSecurityLevel, PodSecurityPolicy};

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PodSecurity",
    enabled_by_default: true,
    rules: &[
        ResourceRule {
            resource: ("", "pods"),
            subresources: &["", "ephemeralcontainers", "resize"],
            operations: Operation::WRITES,
        },
        ResourceRule::for_object("", "namespaces", Operation::WRITES),
        ResourceRule::for_object("", "replicationcontrollers", Operation::WRITES),
        ResourceRule::for_object("", "podtemplates", Operation::WRITES),
        ResourceRule::for_object("apps", "replicasets", Operation::WRITES),
        ResourceRule::for_object("apps", "deployments", Operation::WRITES),
        ResourceRule::for_object("apps", "statefulsets", Operation::WRITES),
        ResourceRule::for_object("apps", "daemonsets", Operation::WRITES),
        ResourceRule::for_object("batch", "jobs", Operation::WRITES),
        ResourceRule::for_object("batch", "cronjobs", Operation::WRITES),
    ],
    construct: |init| Ok(Box::new(PodSecurity::new(init.config)?)),
};

struct PodSecurity {
    defaults: PodSecurityPolicy,
    exempt: Exemptions,
}

/// The configured exemptions.
#[derive(Default)]
struct Exemptions {
    users: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

#[async_trait]
impl Plugin for PodSecurity {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        if attributes.targets_resource("", "namespaces") {
            return self.validate_namespace(attributes, object).await;
        }
        if self.exempt.namespaces.iter().any(|name| name == attributes.namespace()) {
            annotate_audit(attributes, "exempt", "namespace");
            return Ok(());
        }
        if self.exempt.users.contains(&attributes.user().name) {
            annotate_audit(attributes, "exempt", "user");
            return Ok(());
        }
        let namespace = attributes.get_object(("", "v1", "namespaces"), "", attributes.namespace()).await?;
        let labels = namespace.as_ref().and_then(|namespace| meta::value_at(namespace, &["metadata", "labels"]));
        let (policy, errors) = self.defaults.with_namespace_labels(labels.unwrap_or(&Value::Null));
        if policy.is_fully_privileged() && errors.is_empty() {
            if attributes.targets_resource("", "pods") {
                annotate_audit(attributes, "enforce-policy", &policy.enforce.to_string());
            }
            return Ok(());
        }
        let Some(pod) = pod_or_template(attributes, object) else { return Ok(()) };
        let is_pod = attributes.targets_resource("", "pods");
        if is_pod && attributes.old.is_some_and(|old| !changes_images(object, old)) {
            return Ok(());
        }
        if let Some(error) = aggregate_errors(errors.iter().map(ToString::to_string)) {
            annotate_audit(attributes, "error", &format!("Failed to parse policy: {error}"));
        }
        self.evaluate_policy(attributes, object, policy, &pod, is_pod)
    }
}

impl PodSecurity {
    fn new(config: Option<&Value>) -> Result<Self, PluginError> {
        let Some(config) = config else {
            return Ok(Self { defaults: PodSecurityPolicy::default(), exempt: Exemptions::default() });
        };
        let texts = |field: &str| {
            let list = meta::list_at(config, &["exemptions", field]).iter();
            list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>()
        };
        let exempt = Exemptions {
            users: texts("usernames"),
            namespaces: texts("namespaces"),
            runtime_classes: texts("runtimeClasses"),
        };
        Ok(Self { defaults: PodSecurityPolicy::from_config(config)?, exempt })
    }

    fn evaluate_policy(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        policy: PodSecurityPolicy,
        pod: &EvaluatedPod<'_>,
        enforce: bool,
    ) -> Result<(), Status> {
        let class = meta::string_at(pod.spec, &["runtimeClassName"]);
        if self.exempt.runtime_classes.iter().any(|exempt| exempt == class) {
            annotate_audit(attributes, "exempt", "runtimeClass");
            return Ok(());
        }
        let beyond = |bound: LevelVersion| {
            let found = evaluate_pod(bound, pod);
            (!found.is_empty())
                .then(|| format!("violate PodSecurity {:?}: {}", bound.to_string(), format_violations(&found)))
        };
        let denial = if enforce { beyond(policy.enforce) } else { None };
        if enforce {
            annotate_audit(attributes, "enforce-policy", &policy.enforce.to_string());
        }
        if let Some(text) = beyond(policy.audit) {
            annotate_audit(attributes, "audit-violations", &format!("would {text}"));
        }
        if let Some(text) = denial {
            // Only the verb form differs between the rejection and the audit annotation.
            let why = text.replacen("violate ", "violates ", 1);
            return Err(attributes.new_forbidden(object, why));
        }
        if let Some(text) = beyond(policy.warn) {
            attributes.warnings().add_warning(format!("would {text}"));
        }
        Ok(())
    }
}

fn annotate_audit(attributes: &AdmissionAttributes<'_>, key: &str, value: &str) {
    attributes.warnings().annotate_audit(policy::mode_label(key), value);
}

/// The pod itself, or the pod template of a workload.
fn pod_or_template<'a>(attributes: &AdmissionAttributes<'_>, object: &'a Value) -> Option<EvaluatedPod<'a>> {
    let holder = match attributes.resource().name {
        "pods" => Some(object),
        "podtemplates" => meta::value_at(object, &["template"]),
        "cronjobs" => meta::value_at(object, &["spec", "jobTemplate", "spec", "template"]),
        _ => meta::value_at(object, &["spec", "template"]),
    }?;
    let part = |field: &str| holder.get(field).unwrap_or(&Value::Null);
    Some(EvaluatedPod { metadata: part("metadata"), spec: part("spec") })
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
