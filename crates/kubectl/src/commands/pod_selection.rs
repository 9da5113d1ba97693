//! The pod and the container that a command about containers works on.

use std::{cmp::Ordering, time::Duration};

use api::{Value, json::go_quote};

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    rest::{RestClient, RestRequest},
    session::Session,
};

const DEFAULT_CONTAINER: &str = "metadata.annotations";

/// The lists of containers in a pod's spec, with what messages add to a name.
pub const CONTAINER_LISTS: [(&str, &str); 3] =
    [("spec.containers", ""), ("spec.ephemeralContainers", " (ephem)"), ("spec.initContainers", " (init)")];

/// The container of that name, and the field of the spec that it is in.
pub fn find_container<'a>(pod: &'a Value, name: &str) -> Option<(&'a Value, &'static str)> {
    ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"].into_iter().find_map(|list| {
        pod.list(list).iter().find(|container| container.text("name") == name).map(|found| (found, list))
    })
}

/// The names of all containers, as messages list them.
pub fn container_names(pod: &Value) -> String {
    let names = CONTAINER_LISTS.iter().flat_map(|(list, note)| {
        pod.list(list).iter().map(move |container| format!("{}{note}", container.text("name")))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The container that the pod's annotation names.
pub fn annotated_container(pod: &Value) -> &str {
    let annotations = pod.map(DEFAULT_CONTAINER);
    let value = annotations.and_then(|all| all.get("kubectl.kubernetes.io/default-container"));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The error for a container that the pod does not have.
pub fn invalid_container(pod: &Value, name: &str) -> CommandError {
    CommandError::new(format!(
        "container {name} is not valid for pod {} out of: {}",
        name_of(pod),
        container_names(pod)
    ))
}

/// The container of that name; without one that of the annotation, or the first with a note about it.
pub fn choose_container<'a>(pod: &'a Value, name: &str, quiet: bool) -> CommandResult<&'a Value> {
    let Some(first) = pod.list("spec.containers").first() else {
        crate::bail!("pod {}/{} does not have any containers", namespace_of(pod), name_of(pod));
    };
    let name = if name.is_empty() { annotated_container(pod) } else { name };
    if !name.is_empty() {
        return find_container(pod, name).map(|(found, _)| found).ok_or_else(|| invalid_container(pod, name));
    }
    if !quiet && has_several_containers(pod) {
        errln!("Defaulted container {} out of: {}", go_quote(first.text("name")), container_names(pod));
    }
    Ok(first)
}

/// Whether there is more than one container to choose from.
pub fn has_several_containers(pod: &Value) -> bool {
    CONTAINER_LISTS.iter().map(|(list, _)| pod.list(list).len()).sum::<usize>() > 1
}

/// The value of `--pod-running-timeout`.
pub fn pod_running_timeout(session: &Session) -> CommandResult<Duration> {
    let nanos = session.flags.duration("pod-running-timeout");
    match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err(CommandError::new("--pod-running-timeout must be higher than zero")),
    }
}

/// The Go type of an object, as upstream's errors name it.
pub fn go_type(object: &Value) -> String {
    let (_, version, kind) = crate::object::group_version_kind(object);
    format!("*{version}.{kind}")
}

/// The namespace and the label selector of the pods that an object manages.
pub fn pod_selector(object: &Value) -> CommandResult<String> {
    let plain = |field: &str| {
        let labels = object.map(field).into_iter().flatten();
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
    };
    match object.text("kind") {
        "Service" if object.map("spec.selector").is_none_or(|selector| selector.is_empty()) => {
            crate::bail!("invalid service '{}': Service is defined without a selector", name_of(object))
        }
        "Service" | "ReplicationController" => Ok(plain("spec.selector")),
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment" | "Job" => {
            let selector = object.at("spec.selector").unwrap_or(&Value::Null);
            api::selector::LabelSelector::from_object(selector)
                .map_err(|error| CommandError::new(format!("invalid label selector: {error}")))?;
            Ok(api::selector::format_label_selector(selector))
        }
        _ => crate::bail!("selector for {} not implemented", go_type(object)),
    }
}

/// The order of pods: the better one first.
pub type PodOrder = fn(&Value, &Value) -> Ordering;

/// The pods of a selector in order; waits for the first one if there is none.
pub fn list_pods(
    client: &RestClient,
    namespace: &str,
    selector: &str,
    timeout: Duration,
    order: PodOrder,
) -> CommandResult<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let mut list = client.send_json(RestRequest::get(&path).with_query("labelSelector", selector))?;
    let mut pods = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    if !pods.is_empty() {
        pods.sort_by(order);
        return Ok(pods);
    }
    let request = RestRequest::get(path)
        .with_query("labelSelector", selector)
        .with_query("resourceVersion", list.text("metadata.resourceVersion"))
        .with_query("watch", "true");
    let mut stream = client.open_stream(request)?;
    let deadline = std::time::Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        match stream.next_event(Some(left))? {
            Some(event) if matches!(event.text("type"), "ADDED" | "MODIFIED") => {
                return Ok(vec![event.get("object").cloned().unwrap_or_default()]);
            }
            Some(_) => {}
            None => crate::bail!("timed out waiting for the condition"),
        }
    }
}

/// The pod to attach to: the object itself, or the best one that it manages.
pub fn attachable_pod(session: &Session, object: &Value, timeout: Duration) -> CommandResult<Value> {
    if object.text("kind") == "Pod" {
        return Ok(object.clone());
    }
    let selector = pod_selector(object)
        .map_err(|error| CommandError::new(format!("cannot attach to {}: {error}", go_type(object))))?;
    let pods = list_pods(session.client()?, namespace_of(object), &selector, timeout, most_active_first)?;
    Ok(pods.into_iter().next().unwrap_or_default())
}

fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some()
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    pod.list("status.conditions")
        .iter()
        .find(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")
}

fn ready_time(pod: &Value) -> &str {
    ready_condition(pod).map(|condition| condition.text("lastTransitionTime")).unwrap_or_default()
}

/// The earlier time first; none comes last. Times are RFC 3339 in UTC, which sorts as text.
fn earlier_first(a: &str, b: &str) -> Ordering {
    (a.is_empty(), a).cmp(&(b.is_empty(), b))
}

fn restarts(pod: &Value) -> (i64, i64) {
    let most = |list: &str, counts: &dyn Fn(&str) -> bool| {
        let statuses = pod.list(list).iter().filter(|status| counts(status.text("name")));
        statuses.filter_map(|status| status.integer("restartCount")).max().unwrap_or(0)
    };
    let is_sidecar = |name: &str| {
        let containers = pod.list("spec.initContainers").iter();
        { containers }.any(|container| container.text("name") == name && container.text("restartPolicy") == "Always")
    };
    (most("status.containerStatuses", &|_| true), most("status.initContainerStatuses", &is_sidecar))
}

fn phase_rank(pod: &Value, order: [&str; 3]) -> usize {
    order.iter().position(|phase| *phase == pod.text("status.phase")).unwrap_or(0)
}

/// The order for logs: assigned, running and ready pods first.
pub fn best_logs_first(a: &Value, b: &Value) -> Ordering {
    let unassigned = |pod: &Value| pod.text("spec.nodeName").is_empty();
    let rank = |pod: &Value| phase_rank(pod, ["Running", "Unknown", "Pending"]);
    unassigned(a)
        .cmp(&unassigned(b))
        .then_with(|| rank(a).cmp(&rank(b)))
        .then_with(|| is_ready(b).cmp(&is_ready(a)))
        .then_with(|| earlier_first(ready_time(a), ready_time(b)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| earlier_first(a.text("metadata.creationTimestamp"), b.text("metadata.creationTimestamp")))
}

/// The reverse of the order in which controllers delete pods.
fn most_active_first(a: &Value, b: &Value) -> Ordering {
    let assigned = |pod: &Value| !pod.text("spec.nodeName").is_empty();
    let rank = |pod: &Value| phase_rank(pod, ["Pending", "Unknown", "Running"]);
    let deletion = |pod: &Value| pod.text("metadata.deletionTimestamp").to_owned();
    assigned(b)
        .cmp(&assigned(a))
        .then_with(|| rank(b).cmp(&rank(a)))
        .then_with(|| is_ready(b).cmp(&is_ready(a)))
        .then_with(|| deletion(a).is_empty().cmp(&deletion(b).is_empty()).reverse())
        .then_with(|| deletion(b).cmp(&deletion(a)))
        .then_with(|| earlier_first(ready_time(a), ready_time(b)))
        .then_with(|| restarts(a).cmp(&restarts(b)))
        .then_with(|| earlier_first(a.text("metadata.creationTimestamp"), b.text("metadata.creationTimestamp")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str, ready: &str) -> Value {
        let conditions = if ready.is_empty() {
            json!([])
        } else {
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": ready}])
        };
        json!({"metadata": {"name": name, "creationTimestamp": "2024-01-01T00:00:00Z"}, "spec": {"nodeName": "n"},
            "status": {"phase": phase, "conditions": conditions}})
    }

    #[test]
    fn ready_pods_come_first_and_the_longest_ready_before_others() {
        let mut pods = vec![
            pod("pending", "Pending", ""),
            pod("running", "Running", ""),
            pod("young", "Running", "2024-01-03T00:00:00Z"),
            pod("old", "Running", "2024-01-02T00:00:00Z"),
        ];
        let names = |pods: &[Value]| pods.iter().map(|pod| name_of(pod).to_owned()).collect::<Vec<_>>();
        pods.sort_by(best_logs_first);
        assert_eq!(names(&pods), ["old", "young", "running", "pending"]);
        pods.reverse();
        pods.sort_by(most_active_first);
        assert_eq!(names(&pods), ["old", "young", "running", "pending"]);
    }

    #[test]
    fn container_is_the_named_the_annotated_or_the_first() {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}]}});
        let name = |pod: &Value, wanted: &str| choose_container(pod, wanted, true).map(|c| c.text("name").to_owned());
        assert_eq!(name(&pod, "").unwrap(), "a");
        assert_eq!(name(&pod, "i").unwrap(), "i");
        let error = name(&pod, "x").unwrap_err().to_string();
        assert_eq!(error, "container x is not valid for pod p out of: a, b, i (init)");
        pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "b"});
        assert_eq!(name(&pod, "").unwrap(), "b");
    }
}
