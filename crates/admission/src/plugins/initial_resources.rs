//! InitialResources, a former upstream plug-in: sets requests on containers without requests and limits, estimated from
//! the usage of containers of the same image.
//!
//! The configuration sets the percentile of the samples (`percentile`, default 90) and whether only samples of the same
//! namespace count (`namespaceOnly`). Samples of the last week are preferred to those of the last month, and the same
//! tag to others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{
    AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, PluginInit, ResourceRule,
    container_usage::{ComputeResource, ContainerUsage, UsageQuery, strip_image_tag},
};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: PLUGIN_NAME,
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", &[Operation::Create])],
    construct: |init| InitialResources::new(init).map(|plugin| Box::new(plugin) as Box<dyn Plugin>),
};

/// Upstream's name of the plug-in.
pub const PLUGIN_NAME: &str = "InitialResources";
const ANNOTATION: &str = "kubernetes.io/initial-resources";
/// Minimum number of samples before the search widens.
const MIN_SAMPLES: usize = 30;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

struct InitialResources {
    usage: Arc<ContainerUsage>,
    percentile: u64,
    namespace_only: bool,
}

impl InitialResources {
    fn new(init: &PluginInit<'_>) -> Result<Self, PluginError> {
        let field = |name: &str| init.config.and_then(|config| config.get(name)).filter(|value| !value.is_null());
        let percentile = field("percentile").map_or(Some(90), Value::as_u64).filter(|percent| *percent <= 100);
        let percentile = percentile.ok_or("percentile is a whole number from 0 to 100")?;
        let namespace_only = field("namespaceOnly").map_or(Some(false), Value::as_bool);
        let namespace_only = namespace_only.ok_or("namespaceOnly is true or false")?;
        Ok(Self { usage: init.usage.clone(), percentile, namespace_only })
    }

    /// Estimates the usage of a container from the narrowest query with enough samples.
    fn estimate_usage(&self, kind: ComputeResource, image: &str, namespace: &str, now: Instant) -> Option<u64> {
        let (own, all) = (Some(namespace), None);
        let tagged = |namespace, within| UsageQuery { image, exact: true, namespace, within };
        let any = |namespace| UsageQuery { image: strip_image_tag(image), exact: false, namespace, within: MONTH };
        let near = [tagged(own, WEEK), tagged(own, MONTH)];
        let far =
            if self.namespace_only { vec![any(own)] } else { vec![tagged(all, WEEK), tagged(all, MONTH), any(all)] };
        let mut last = None;
        for wanted in near.into_iter().chain(far) {
            last = self.usage.percentile(kind, self.percentile, wanted, now);
            if last.is_some_and(|(_, samples)| samples >= MIN_SAMPLES) {
                break;
            }
        }
        last.map(|(value, _)| value)
    }

    /// Sets missing requests of a container; returns the names of the resources set.
    fn set_missing_requests(&self, container: &mut Value, namespace: &str, now: Instant) -> Vec<&'static str> {
        let mut filled = Vec::new();
        for (name, kind) in [("cpu", ComputeResource::Cpu), ("memory", ComputeResource::Memory)] {
            let is_set = |list: &str| meta::value_at(container, &["resources", list, name]).is_some();
            if is_set("requests") || is_set("limits") {
                continue;
            }
            let Some(value) = self.estimate_usage(kind, meta::string_at(container, &["image"]), namespace, now) else {
                continue;
            };
            let quantity = match kind {
                ComputeResource::Cpu => format!("{value}m"),
                ComputeResource::Memory => value.to_string(),
            };
            let resources = meta::field_mut(container, "resources");
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            meta::object_mut(requests).insert(name.into(), quantity.into());
            filled.push(name);
        }
        filled
    }
}

#[async_trait]
impl Plugin for InitialResources {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let (namespace, now) = (attributes.namespace(), Instant::now());
        let mut notes = Vec::new();
        for (list, what) in [("initContainers", "init container"), ("containers", "container")] {
            let containers = meta::field_mut(pod, "spec").get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let filled = self.set_missing_requests(container, namespace, now);
                if !filled.is_empty() {
                    let name = meta::string_at(container, &["name"]);
                    notes.push(format!("{} request for {what} {name}", filled.join(", ")));
                }
            }
        }
        if !notes.is_empty() {
            let annotations = meta::metadata_mut(pod).entry("annotations").or_insert_with(|| json!({}));
            let text = format!("Initial Resources plugin set: {}", notes.join("; "));
            meta::object_mut(annotations).insert(ANNOTATION.into(), text.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container_usage::UsageSample;

    fn new_plugin(namespace_only: bool) -> InitialResources {
        InitialResources { usage: Arc::default(), percentile: 90, namespace_only }
    }

    fn record_samples(
        plugin: &InitialResources,
        count: usize,
        namespace: &str,
        image: &str,
        (cpu, memory): (u64, u64),
    ) {
        for _ in 0..count {
            let sample = UsageSample { at: Instant::now(), cpu: Some(cpu), memory: Some(memory) };
            plugin.usage.record_sample(namespace, image, sample);
        }
    }

    fn assert_requests(plugin: &InitialResources, container: Value, want: Value) {
        let mut container = container;
        plugin.set_missing_requests(&mut container, "a", Instant::now());
        assert_eq!(container.pointer("/resources/requests").cloned().unwrap_or_default(), want, "{container}");
    }

    #[test]
    fn missing_requests_are_estimated() {
        let plugin = new_plugin(false);
        let image = |image: &str| json!({"name": "c", "image": image});
        assert_requests(&plugin, image("i:1"), Value::Null);
        record_samples(&plugin, MIN_SAMPLES, "a", "i:1", (100, 1000));
        record_samples(&plugin, MIN_SAMPLES, "b", "i:1", (300, 3000));
        record_samples(&plugin, MIN_SAMPLES, "b", "i:2", (500, 5000));
        record_samples(&plugin, 3, "a", "few:1", (7, 70));
        record_samples(&plugin, MIN_SAMPLES, "b", "few:1", (9, 90));
        assert_requests(&plugin, image("i:1"), json!({"cpu": "100m", "memory": "1000"}));
        assert_requests(&plugin, image("i:2"), json!({"cpu": "500m", "memory": "5000"}));
        assert_requests(&plugin, image("i:3"), json!({"cpu": "500m", "memory": "5000"}));
        assert_requests(&plugin, image("i"), json!({"cpu": "500m", "memory": "5000"}));
        assert_requests(&plugin, image("few:1"), json!({"cpu": "9m", "memory": "90"}));
        assert_requests(&plugin, image("none"), Value::Null);
        let with = |resources: Value| json!({"name": "c", "image": "i:1", "resources": resources});
        assert_requests(&plugin, with(json!({"requests": {"cpu": "1"}})), json!({"cpu": "1", "memory": "1000"}));
        assert_requests(&plugin, with(json!({"limits": {"cpu": "1"}})), json!({"memory": "1000"}));
        assert_requests(&plugin, with(json!({"limits": {"cpu": "1", "memory": "1"}})), Value::Null);
        assert_requests(
            &plugin,
            with(json!({"requests": {"cpu": "1", "memory": "1"}})),
            json!({"cpu": "1", "memory": "1"}),
        );
        assert_requests(&plugin, with(json!({"requests": {}})), json!({"cpu": "100m", "memory": "1000"}));
    }

    #[test]
    fn namespace_only_ignores_other_namespaces() {
        let plugin = new_plugin(true);
        record_samples(&plugin, MIN_SAMPLES, "b", "i:1", (300, 3000));
        let image = |image: &str| json!({"name": "c", "image": image});
        assert_requests(&plugin, image("i:1"), Value::Null);
        record_samples(&plugin, 1, "a", "i:2", (5, 50));
        assert_requests(&plugin, image("i:1"), json!({"cpu": "5m", "memory": "50"}));
    }
}
