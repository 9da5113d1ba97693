//! Lists of resources and how much of each: what containers ask for, what pods come to, what quotas count.

use std::collections::BTreeMap;

use crate::{Value, meta, quantity::Quantity};

/// Names of resources, and how much of each.
pub type Amounts = BTreeMap<String, Quantity>;

/// What pods as a whole may ask for.
pub(crate) const WHOLE: [&str; 2] = ["cpu", "memory"];

/// Reads a list as the API writes it; what cannot be read is left out.
pub fn read(list: Option<&Value>) -> Amounts {
    let list = list.and_then(Value::as_object).into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?)?))).collect()
}

/// Writes a list as the API has it.
pub fn write(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
}

/// Adds to each amount.
pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        to.entry(name.clone()).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

/// Takes from each amount.
pub fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        let left = from.get(name).copied().unwrap_or(Quantity::ZERO).minus(*amount);
        from.insert(name.clone(), left);
    }
}

/// Raises each amount to another.
pub fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        to.entry(name.clone()).and_modify(|own| *own = if *own < *amount { *amount } else { *own }).or_insert(*amount);
    }
}

/// What a pod comes to, in `requests` or `limits`: its containers, unless it says something of itself as a whole.
pub fn of_pod(pod: &Value, which: &str) -> Amounts {
    let mut sum = meta::at(pod, &["spec"]).map(|spec| of_containers(spec, which)).unwrap_or_default();
    let whole = read(meta::at(pod, &["spec", "resources", which]));
    sum.extend(whole.into_iter().filter(|(name, _)| WHOLE.contains(&name.as_str()) || name.starts_with("hugepages-")));
    sum
}

/// What the containers of a specification come to at their worst: all that run together, or one that runs before them.
pub fn of_containers(spec: &Value, which: &str) -> Amounts {
    let of = |container: &Value| read(meta::at(container, &["resources", which]));
    let mut sum = Amounts::new();
    for container in meta::list(spec, &["containers"]) {
        add(&mut sum, &of(container));
    }
    let (mut beside, mut before) = (Amounts::new(), Amounts::new());
    for container in meta::list(spec, &["initContainers"]) {
        let own = of(container);
        if meta::text(container, &["restartPolicy"]) == "Always" {
            add(&mut sum, &own);
            add(&mut beside, &own);
            raise(&mut before, &beside);
        } else {
            let mut then = own;
            add(&mut then, &beside);
            raise(&mut before, &then);
        }
    }
    raise(&mut sum, &before);
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_what_runs_together_or_the_most_of_what_runs_before() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let check = |spec: Value, want: &str| {
            let sum = of_pod(&json!({"spec": spec}), "requests");
            assert_eq!(sum.get("cpu").map(ToString::to_string).as_deref(), Some(want), "{spec}");
        };
        check(json!({"containers": [container("1"), container("500m")]}), "1500m");
        check(json!({"containers": [container("1")], "initContainers": [container("3")]}), "3");
        check(json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]}), "4");
        check(json!({"containers": [container("1")], "initContainers": [sidecar("1")]}), "2");
        check(json!({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}}), "7");
    }

    #[test]
    fn sums_are_written_as_their_parts() {
        let mut sum = read(Some(&json!({"memory": "1Gi", "pods": "1"})));
        add(&mut sum, &read(Some(&json!({"memory": "1Gi", "cpu": "100m"}))));
        subtract(&mut sum, &read(Some(&json!({"pods": "1"}))));
        assert_eq!(write(&sum), json!({"cpu": "100m", "memory": "2Gi", "pods": "0"}));
    }
}
