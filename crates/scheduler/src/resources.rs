//! Amounts of what pods ask for and nodes have.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity as Text,
};

/// Container requests that scores assume when none are given: a tenth of a core and 200 MB.
const ASSUMED_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 * 1024 * 1024;

type List = BTreeMap<String, Text>;

/// CPU in thousandths, all else in whole units, by resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// What a list of quantities says; what cannot be read, the API server does not let in.
    pub(crate) fn from_list(list: Option<&List>) -> Self {
        let amount = |(name, text): (&String, &Text)| {
            let quantity = Quantity::parse(&text.0)?;
            Some((name.clone(), if name == "cpu" { quantity.millis() } else { quantity.value() }))
        };
        Self(list.into_iter().flatten().filter_map(amount).collect())
    }

    /// What a pod needs on its node: the sum of its containers, or more if starting needs more.
    pub(crate) fn of_pod(pod: &Pod) -> Self {
        Self::sum(pod, |container| Self::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref())))
    }

    /// As [`Resources::of_pod`], where containers that ask for no CPU or memory count as asking for a little.
    pub(crate) fn of_pod_for_score(pod: &Pod) -> Self {
        Self::sum(pod, |container| {
            let mut requests = Self::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref()));
            requests.0.entry("cpu".into()).or_insert(ASSUMED_CPU);
            requests.0.entry("memory".into()).or_insert(ASSUMED_MEMORY);
            requests
        })
    }

    fn sum(pod: &Pod, requests: impl Fn(&Container) -> Self) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut running = Self::default();
        spec.containers.iter().for_each(|container| running.add(&requests(container)));
        // Init containers run one by one, beside the sidecars that were started before them.
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
            starting.raise_to(&step);
        }
        running.raise_to(&starting);
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

    fn raise_to(&mut self, other: &Self) {
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
        let resources = Resources::of_pod(&pod);
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
    fn containers_add_up_and_init_containers_do_not() {
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
    fn sidecars_stay() {
        let init = json!([sidecar("500m", "10"), container("1", "200")]);
        check(json!({"containers": [container("1", "100")], "initContainers": init}), 1500, 210);
    }

    #[test]
    fn requests_of_the_whole_pod_count_instead() {
        let spec = json!({"containers": [container("1", "100")], "resources": {"requests": {"cpu": "3"}}});
        check(spec, 3000, 100);
    }
}
