//! Resource amounts of pods and nodes.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity as Text,
};

/// Requests assumed for scoring when a container has none: a tenth of a core and 200 MB.
const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

type ResourceList = BTreeMap<String, Text>;

/// Amounts by resource name; CPU in millicores, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAmounts(BTreeMap<String, i64>);

impl ResourceAmounts {
    /// Parses a resource list; validation guarantees that its quantities parse.
    pub(crate) fn from_list(list: Option<&ResourceList>) -> Self {
        let amount = |(name, text): (&String, &Text)| {
            let quantity = Quantity::parse(&text.0)?;
            Some((name.clone(), if name == "cpu" { quantity.millis() } else { quantity.value() }))
        };
        Self(list.into_iter().flatten().filter_map(amount).collect())
    }

    /// Sums a pod's requests: its containers, or the init phase where that needs more.
    pub(crate) fn from_pod_requests(pod: &Pod) -> Self {
        Self::sum_pod_requests(pod, |container| {
            Self::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref()))
        })
    }

    /// Like [`ResourceAmounts::from_pod_requests`], with default requests for containers that have none.
    pub(crate) fn from_pod_requests_for_score(pod: &Pod) -> Self {
        Self::sum_pod_requests(pod, |container| {
            let mut requests = Self::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref()));
            requests.0.entry("cpu".into()).or_insert(DEFAULT_MILLI_CPU_REQUEST);
            requests.0.entry("memory".into()).or_insert(DEFAULT_MEMORY_REQUEST);
            requests
        })
    }

    fn sum_pod_requests(pod: &Pod, requests: impl Fn(&Container) -> Self) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut running = Self::default();
        spec.containers.iter().for_each(|container| running.add(&requests(container)));
        // Init containers run one after the other, beside the sidecars started before them.
        let (mut sidecars, mut starting) = (Self::default(), Self::default());
        for container in spec.init_containers.iter().flatten() {
            let mut step = requests(container);
            if container.restart_policy.as_deref() == Some("Always") {
                running.add(&step);
                sidecars.add(&step);
                step = sidecars.clone();
            } else {
                step.add(&sidecars);
            }
            starting.set_max(&step);
        }
        running.set_max(&starting);
        let whole = Self::from_list(spec.resources.as_ref().and_then(|all| all.requests.as_ref()));
        running.0.extend(whole.0);
        running.add(&Self::from_list(spec.overhead.as_ref()));
        running
    }

    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, amount)| *self.0.entry(name.clone()).or_default() += amount);
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, amount)| *self.0.entry(name.clone()).or_default() -= amount);
    }

    fn set_max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let present = self.0.entry(name.clone()).or_default();
            *present = (*present).max(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, cpu: i64, memory: i64) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let resources = ResourceAmounts::from_pod_requests(&pod);
        assert_eq!((resources.get("cpu"), resources.get("memory")), (cpu, memory), "{spec}");
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = container(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn container_requests_add_up_and_init_requests_do_not() {
        check(json!({"containers": [container("100m", "1Ki"), container("1", "1k")]}), 1100, 2024);
        check(json!({"containers": [{"name": "c"}]}), 0, 0);
        check(
            json!({"containers": [container("1", "100")], "initContainers": [container("2", "50"), container("1", "70")]}),
            2000,
            100,
        );
        check(json!({"containers": [container("1", "100")], "overhead": {"cpu": "250m"}}), 1250, 100);
    }

    #[test]
    fn sidecar_requests_persist() {
        let init = json!([sidecar("500m", "10"), container("1", "200")]);
        check(json!({"containers": [container("1", "100")], "initContainers": init}), 1500, 210);
    }

    #[test]
    fn pod_level_requests_take_precedence() {
        let spec = json!({"containers": [container("1", "100")], "resources": {"requests": {"cpu": "3"}}});
        check(spec, 3000, 100);
    }
}
