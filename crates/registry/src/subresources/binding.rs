//! Assigns pods to nodes: `pods/<name>/binding`, or `bindings` with the pod's name in the metadata.

use admission::AdmissionAttributes;
use api::{Value, meta, status::Status, validate};
use apiserver_core::{body::RequestBody, clock, loopback, request::ResourceRequest};
use serde_json::json;

use super::{created_status, decode_subresource_body, server_request, subresource_kind};
use crate::{Registry, RequestOutcome, WriteOptions, precondition_failed, update::UpdateContext};

impl Registry {
    pub(super) async fn bind_pod(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let pods = loopback::find_resource("", "v1", "pods")?;
        let options = WriteOptions::from_request(request, body)?;
        let mut binding = decode_subresource_body(request, body, options.validation)?;
        let attributes = AdmissionAttributes::for_create(self, request, options.dry_run);
        self.admission().admit(&attributes, &mut binding).await?;
        let name = meta::name(&binding);
        if !request.name.is_empty() && name != request.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        validate_binding(request, &binding)?;
        self.admission().validate(&attributes, &binding).await?;
        let pod = server_request(pods, "update", request, name);
        self.update_object(&pod, UpdateContext::for_server(options.dry_run), |current| bound_pod(current, &binding))
            .await?;
        Ok(created_status())
    }
}

/// Validates a binding; upstream responds with 500 without a reason.
fn validate_binding(request: &ResourceRequest, binding: &Value) -> Result<(), Status> {
    let errors = validate::validate_create(&subresource_kind(request)?, binding);
    let message = match errors.as_slice() {
        [] => return Ok(()),
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    Err(Status::new(500, "", message))
}

/// Returns the pod with node name, labels and annotations of the binding.
fn bound_pod(pod: &Value, binding: &Value) -> Result<Value, Status> {
    let pods = loopback::find_resource("", "v1", "pods")?;
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) =
            (meta::string_at(binding, &["metadata", field]), meta::string_at(pod, &["metadata", field]));
        if !wanted.is_empty() && wanted != found {
            return Err(precondition_failed(pods, pod, what, wanted, found));
        }
    }
    check_assignable(pod)?;
    let mut pod = pod.clone();
    meta::field_mut(&mut pod, "spec").insert("nodeName".into(), binding["target"]["name"].clone());
    meta::field_mut(&mut pod, "status").remove("nominatedNodeName");
    for field in ["labels", "annotations"] {
        let given =
            meta::value_at(binding, &["metadata", field]).and_then(Value::as_object).cloned().unwrap_or_default();
        if !given.is_empty() {
            let metadata = meta::metadata_mut(&mut pod);
            meta::object_mut(metadata.entry(field).or_insert_with(|| json!({}))).extend(given);
        }
    }
    set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True"}));
    Ok(pod)
}

fn check_assignable(pod: &Value) -> Result<(), Status> {
    let name = meta::name(pod);
    let assigned = meta::string_at(pod, &["spec", "nodeName"]);
    let why = if meta::is_deleting(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !assigned.is_empty() {
        format!("pod {name} is already assigned to node {assigned:?}")
    } else if !meta::list_at(pod, &["spec", "schedulingGates"]).is_empty() {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
    Err(Status::new(409, "Conflict", message).with_details(json!({"name": name, "kind": "pods/binding"})))
}

/// Sets a condition of a pod; the transition time changes only with its status.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = clock::now_in_seconds().into();
    let conditions = meta::field_mut(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].take();
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}
