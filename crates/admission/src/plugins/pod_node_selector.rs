//! PodNodeSelector: merges the node selector of the namespace annotation or the configuration into pods.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PodNodeSelector",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", &[Operation::Create])],
    construct: |init| Ok(Box::new(PodNodeSelector(parse_configuration(init.config)?))),
};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CLUSTER_DEFAULT_KEY: &str = "clusterDefaultNodeSelector";

type LabelSet = BTreeMap<String, String>;

/// Node selectors by namespace, and the cluster default.
struct PodNodeSelector(BTreeMap<String, LabelSet>);

fn parse_configuration(config: Option<&Value>) -> Result<BTreeMap<String, LabelSet>, PluginError> {
    let list =
        config.and_then(|config| meta::value_at(config, &["podNodeSelectorPluginConfig"])).and_then(Value::as_object);
    let list = list.into_iter().flatten();
    list.map(|(name, text)| Ok((name.clone(), parse_label_set(text.as_str().unwrap_or_default())?))).collect()
}

/// Parses a node selector such as `a=b,c=d`.
fn parse_label_set(text: &str) -> Result<LabelSet, PluginError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let read = |pair: &str| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("invalid selector: {pair}"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(read).collect()
}

#[async_trait]
impl Plugin for PodNodeSelector {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let chosen = self.namespace_node_selector(attributes).await?;
        check_conflict(attributes, pod, &chosen)?;
        for (key, value) in chosen {
            let selector = meta::field_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
            meta::object_mut(selector).insert(key, value.into());
        }
        self.validate(attributes, pod).await
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        check_conflict(attributes, pod, &self.namespace_node_selector(attributes).await?)?;
        let allowed = self.0.get(attributes.namespace()).filter(|allowed| !allowed.is_empty());
        let selector = meta::value_at(pod, &["spec", "nodeSelector"]).and_then(Value::as_object);
        let within = |allowed: &LabelSet| {
            selector
                .into_iter()
                .flatten()
                .all(|(key, value)| allowed.get(key).is_some_and(|known| value == known.as_str()))
        };
        if allowed.is_none_or(within) {
            return Ok(());
        }
        let why = "pod node label selector labels conflict with its namespace whitelist";
        Err(attributes.new_forbidden(pod, why))
    }
}

impl PodNodeSelector {
    async fn namespace_node_selector(&self, attributes: &AdmissionAttributes<'_>) -> Result<LabelSet, Status> {
        let namespace =
            attributes.get_object(("", "v1", "namespaces"), "", attributes.namespace()).await?.unwrap_or_default();
        match meta::value_at(&namespace, &["metadata", "annotations", ANNOTATION]).and_then(Value::as_str) {
            Some(text) => parse_label_set(text).map_err(Status::internal_error),
            None => Ok(self.0.get(CLUSTER_DEFAULT_KEY).cloned().unwrap_or_default()),
        }
    }
}

fn check_conflict(attributes: &AdmissionAttributes<'_>, pod: &Value, chosen: &LabelSet) -> Result<(), Status> {
    let other = |(key, value): (&String, &String)| {
        meta::value_at(pod, &["spec", "nodeSelector", key]).is_some_and(|given| given != value.as_str())
    };
    if chosen.iter().any(other) {
        let why = "pod node label selector conflicts with its namespace node label selector";
        return Err(attributes.new_forbidden(pod, why));
    }
    Ok(())
}
