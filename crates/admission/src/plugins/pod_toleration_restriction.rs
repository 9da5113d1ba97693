//! PodTolerationRestriction: applies default tolerations of a namespace's annotations to pods, and enforces its
//! whitelist.

use api::{Value, meta, qos, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PodTolerationRestriction",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |init| {
        let list = |field: &str| init.config.map(|config| meta::list_at(config, &[field]).to_vec()).unwrap_or_default();
        Ok(Box::new(PodTolerationRestriction { usual: list("default"), allowed: list("whitelist") }))
    },
};

const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const TOLERATIONS_WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// Cluster-wide default tolerations and whitelist, for namespaces without annotations.
struct PodTolerationRestriction {
    usual: Vec<Value>,
    allowed: Vec<Value>,
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let mut more = Vec::new();
        if attributes.operation == Operation::Create {
            more = annotated_tolerations(attributes, DEFAULT_TOLERATIONS).await?.unwrap_or_else(|| self.usual.clone());
        }
        if qos::pod_qos_class(object) != "BestEffort" {
            more.push(
                json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}),
            );
        }
        if !more.is_empty() {
            let merged = pod::merge_tolerations(meta::list_at(object, &["spec", "tolerations"]), &more);
            meta::field_mut(object, "spec").insert("tolerations".into(), merged.into());
        }
        self.validate(attributes, object).await
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let tolerations = meta::list_at(object, &["spec", "tolerations"]);
        if tolerations.is_empty() {
            return Ok(());
        }
        let (allowed, whose) = match annotated_tolerations(attributes, TOLERATIONS_WHITELIST).await? {
            Some(allowed) => (allowed, "namespace"),
            None => (self.allowed.clone(), "cluster"),
        };
        let fits = |one: &Value| allowed.iter().any(|other| pod::toleration_includes(other, one));
        if allowed.is_empty() || tolerations.iter().all(fits) {
            return Ok(());
        }
        let message = format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
        );
        Err(Status { code: 500, reason: "", message, details: None, continue_token: None })
    }
}

/// Parses the tolerations in an annotation of the namespace.
async fn annotated_tolerations(attributes: &AdmissionAttributes<'_>, key: &str) -> Result<Option<Vec<Value>>, Status> {
    let namespace =
        attributes.get_object(("", "v1", "namespaces"), "", attributes.namespace()).await?.unwrap_or_default();
    match meta::value_at(&namespace, &["metadata", "annotations", key]).and_then(Value::as_str) {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => serde_json::from_str(text).map(Some).map_err(Status::internal_error),
    }
}
