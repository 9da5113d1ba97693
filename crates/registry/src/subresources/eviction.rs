//! Evictions: deletions that respect disruption budgets.
//!
//! Each eviction decrements `status.disruptionsAllowed` with a conditional write before it deletes the pod, so that
//! concurrent evictions never exceed the budget, and adds the pod to `disruptedPods` for the disruption controller.

use std::time::Duration;

use admission::AdmissionAttributes;
use api::{Value, apply, meta, selector::LabelSelector, status::Status, validate::FieldError};
use apiserver_core::{body::RequestBody, document, loopback, request::ResourceRequest};
use serde_json::json;

use super::{
    binding::set_condition,
    budget::{budget_in_progress, is_unhealthy_and_evictable, record_disruption},
    created_status, decode_subresource_body, server_request,
};
use crate::{Registry, RequestOutcome, WriteOptions, update::UpdateContext};

/// Maximum number of attempts on write conflicts.
const MAX_ATTEMPTS: usize = 20;
/// Time between attempts, before jitter.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The field manager of budget updates.
const FIELD_MANAGER: &str = "kube-apiserver";

impl Registry {
    pub(super) async fn evict_pod(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let asked = WriteOptions::from_request(request, body)?;
        let mut object = decode_subresource_body(request, body, asked.validation)?;
        let attributes = AdmissionAttributes::for_create(self, request, asked.dry_run);
        self.admission().admit(&attributes, &mut object).await?;
        let eviction = EvictionRequest::new(request, &object, asked.dry_run)?;
        self.admission().validate(&attributes, &object).await?;
        for _ in 0..MAX_ATTEMPTS {
            let (pod, _) = self.read_object(&request.resource, &request.namespace, &request.name).await?;
            eviction.check_preconditions(&pod)?;
            if !ignores_budgets(&pod) {
                return self.evict_within_budget(request, &eviction, &pod).await;
            }
            let checked = eviction.with_revision(&pod, !has_ended(&pod));
            match self.delete_evicted(request, &checked).await {
                // A pod that changed may be protected by a budget now.
                Err(status) if is_conflict(&status) && !eviction.has_revision() => sleep_before_retry().await,
                result => return result.map(|()| created_status()),
            }
        }
        Err(Status::object_modified(&request.resource, &request.name))
    }

    async fn evict_within_budget(
        &self,
        request: &ResourceRequest,
        eviction: &EvictionRequest,
        pod: &Value,
    ) -> Result<RequestOutcome, Status> {
        let budgets = self.select_budgets(request, pod).await?;
        let mut checked = eviction.clone();
        match budgets.as_slice() {
            [] => {}
            [budget] if is_unhealthy_and_evictable(pod, budget) => checked = eviction.with_revision(pod, true),
            [budget] => {
                self.take_disruption(request, meta::name(budget), meta::name(pod), eviction.is_dry_run()).await?
            }
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                               support.";
                return Err(Status::new(500, "", message));
            }
        }
        match self.delete_evicted(request, &checked).await {
            // The pod may have become healthy: the client should retry.
            Err(status) if is_conflict(&status) && checked.has_revision() && !eviction.has_revision() => {
                Err(budget_in_progress(budgets.first().map(meta::name).unwrap_or_default()))
            }
            result => result.map(|()| created_status()),
        }
    }

    /// Lists the budgets that select a pod.
    async fn select_budgets(&self, request: &ResourceRequest, pod: &Value) -> Result<Vec<Value>, Status> {
        let list = self
            .list(&server_request(
                loopback::find_resource("policy", "v1", "poddisruptionbudgets")?,
                "list",
                request,
                "",
            ))
            .await?;
        let mut found = Vec::new();
        for item in &list.items {
            let budget = document::decode_record(&item.record).map_err(Status::internal_error)?;
            let selects = match &budget["spec"]["selector"] {
                Value::Null => false,
                selector => LabelSelector::from_object(selector)
                    .is_ok_and(|selector| selector.matches(&pod["metadata"]["labels"])),
            };
            if selects {
                found.push(budget);
            }
        }
        Ok(found)
    }

    /// Takes one of the allowed disruptions of a budget.
    async fn take_disruption(
        &self,
        request: &ResourceRequest,
        budget: &str,
        pod: &str,
        dry_run: bool,
    ) -> Result<(), Status> {
        let budgets = loopback::find_resource("policy", "v1", "poddisruptionbudgets")?;
        let mut status = server_request(budgets, "update", request, budget);
        status.subresource = "status".into();
        let body =
            RequestBody { content_type: String::new(), user_agent: FIELD_MANAGER.into(), body: Default::default() };
        let options = WriteOptions::from_request(&status, &body)?;
        for _ in 0..MAX_ATTEMPTS {
            let taken = self
                .update_object(&status, UpdateContext::for_server(dry_run), |current| {
                    let mut object = record_disruption(current, pod)?;
                    apply::track_update(
                        &options.apply_request(apply::ApplyTarget::for_resource(budgets, "status")),
                        Some(current),
                        &mut object,
                    );
                    Ok(object)
                })
                .await;
            match taken {
                Err(status) if is_conflict(&status) => sleep_before_retry().await,
                result => return result.map(|_| ()),
            }
        }
        let message = format!("Timeout: couldn't update PodDisruptionBudget {budget:?} due to conflicts");
        Err(Status::new(504, "Timeout", message).with_details(json!({"retryAfterSeconds": 10})))
    }

    /// Sets the condition `DisruptionTarget` of the pod and deletes it.
    async fn delete_evicted(&self, request: &ResourceRequest, eviction: &EvictionRequest) -> Result<(), Status> {
        let mut eviction = eviction.clone();
        if !eviction.is_dry_run() {
            let pod = server_request(request.resource.clone(), "update", request, &request.name);
            let changed = self
                .update_object(&pod, UpdateContext::for_server(false), |current| {
                    eviction.check_preconditions(current)?;
                    let mut object = current.clone();
                    set_condition(
                        &mut object,
                        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                            "message": "Eviction API: evicting"}),
                    );
                    Ok(object)
                })
                .await?;
            if eviction.has_revision() {
                eviction.options["preconditions"]["resourceVersion"] =
                    changed.object["metadata"]["resourceVersion"].clone();
            }
        }
        let body = eviction.options.to_string().into();
        let body = RequestBody { content_type: String::new(), user_agent: String::new(), body };
        self.delete_admitted(&server_request(request.resource.clone(), "delete", request, &request.name), &body)
            .await
            .map(|_| ())
    }
}

/// The delete options of an eviction.
#[derive(Clone, Debug)]
struct EvictionRequest {
    options: Value,
}

impl EvictionRequest {
    fn new(request: &ResourceRequest, eviction: &Value, dry_run: bool) -> Result<Self, Status> {
        if meta::name(eviction) != request.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let mut options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        let unsafe_option = "ignoreStoreReadErrorWithClusterBreakingPotential";
        if options[unsafe_option] == true {
            let why = "can not be set for pod eviction, try after removing the option";
            let error = FieldError::invalid(format!("deleteOptions.{unsafe_option}"), true, why);
            return Err(Status::invalid_kind("policy", "Eviction", &request.name, &[error]));
        }
        if dry_run && meta::list_at(&options, &["dryRun"]).is_empty() {
            options["dryRun"] = json!(["All"]);
        }
        Ok(Self { options })
    }

    fn is_dry_run(&self) -> bool {
        !meta::list_at(&self.options, &["dryRun"]).is_empty()
    }

    fn has_revision(&self) -> bool {
        self.options["preconditions"].get("resourceVersion").is_some_and(Value::is_string)
    }

    /// Adds the pod's `resourceVersion` as a precondition if `matters` and the client set none.
    fn with_revision(&self, pod: &Value, matters: bool) -> Self {
        let mut out = self.clone();
        if matters && !self.has_revision() {
            let preconditions = meta::field_mut(&mut out.options, "preconditions");
            preconditions.insert("resourceVersion".into(), pod["metadata"]["resourceVersion"].clone());
        }
        out
    }

    fn check_preconditions(&self, pod: &Value) -> Result<(), Status> {
        for (field, what, why) in
            [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
        {
            let wanted = meta::string_at(&self.options, &["preconditions", field]);
            let found = meta::string_at(pod, &["metadata", field]);
            if !wanted.is_empty() && wanted != found {
                let name = meta::name(pod);
                let message = format!(
                    "Operation cannot be fulfilled on Pod {name:?}: the {what} in the precondition ({wanted}) does not match \
                     the {what} in record ({found}). The object might have been {why}"
                );
                return Err(Status::new(409, "Conflict", message).with_details(json!({"name": name, "kind": "Pod"})));
            }
        }
        Ok(())
    }
}

/// Whether budgets do not protect a pod: it is pending, ended or being deleted.
fn ignores_budgets(pod: &Value) -> bool {
    has_ended(pod) || meta::string_at(pod, &["status", "phase"]) == "Pending"
}

fn has_ended(pod: &Value) -> bool {
    meta::is_deleting(pod) || matches!(meta::string_at(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

fn is_conflict(status: &Status) -> bool {
    status.is_conflict()
}

async fn sleep_before_retry() {
    tokio::time::sleep(RETRY_INTERVAL.mul_f64(1.0 + 0.1 * fastrand::f64())).await;
}
