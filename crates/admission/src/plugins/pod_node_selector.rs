//! PodNodeSelector: merges the node selector of the namespace annotation or the configuration into pods.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "PodNodeSelector",
    on: false,
    about: &[ResourceRule::object("", "pods", &[Operation::Create])],
    make: |parts| Ok(Box::new(PodNodeSelector(configured(parts.config)?))),
};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// Node selectors by namespace, and the cluster default.
struct PodNodeSelector(BTreeMap<String, Labels>);

fn configured(config: Option<&Value>) -> Result<BTreeMap<String, Labels>, String> {
    let list =
        config.and_then(|config| meta::value_at(config, &["podNodeSelectorPluginConfig"])).and_then(Value::as_object);
    let list = list.into_iter().flatten();
    list.map(|(name, text)| Ok((name.clone(), parse(text.as_str().unwrap_or_default())?))).collect()
}

/// Parses a node selector such as `a=b,c=d`.
fn parse(text: &str) -> Result<Labels, String> {
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
        let chosen = self.chosen(attributes).await?;
        check(attributes, pod, &chosen)?;
        for (key, value) in chosen {
            let selector = meta::field_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
            meta::object_mut(selector).insert(key, value.into());
        }
        self.validate(attributes, pod).await
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        check(attributes, pod, &self.chosen(attributes).await?)?;
        let allowed = self.0.get(attributes.namespace()).filter(|allowed| !allowed.is_empty());
        let selector = meta::value_at(pod, &["spec", "nodeSelector"]).and_then(Value::as_object);
        let within = |allowed: &Labels| {
            selector
                .into_iter()
                .flatten()
                .all(|(key, value)| allowed.get(key).is_some_and(|known| value == known.as_str()))
        };
        if allowed.is_none_or(within) {
            return Ok(());
        }
        let why = "pod node label selector labels conflict with its namespace whitelist";
        Err(attributes.forbidden(pod, why))
    }
}

impl PodNodeSelector {
    async fn chosen(&self, attributes: &AdmissionAttributes<'_>) -> Result<Labels, Status> {
        let namespace =
            attributes.find(("", "v1", "namespaces"), "", attributes.namespace()).await?.unwrap_or_default();
        match meta::value_at(&namespace, &["metadata", "annotations", ANNOTATION]).and_then(Value::as_str) {
            Some(text) => parse(text).map_err(Status::internal_error),
            None => Ok(self.0.get(DEFAULT).cloned().unwrap_or_default()),
        }
    }
}

fn check(attributes: &AdmissionAttributes<'_>, pod: &Value, chosen: &Labels) -> Result<(), Status> {
    let other = |(key, value): (&String, &String)| {
        meta::value_at(pod, &["spec", "nodeSelector", key]).is_some_and(|given| given != value.as_str())
    };
    if chosen.iter().any(other) {
        let why = "pod node label selector conflicts with its namespace node label selector";
        return Err(attributes.forbidden(pod, why));
    }
    Ok(())
}
