//! Evictions: deletions that respect disruption budgets.
//!
//! A budget's `status.disruptionsAllowed` is what evictions compete for: each takes one off with a guarded write before
//! it deletes, so that concurrent evictions are exact, and notes its pod so that the budget's controller counts it.

use std::time::Duration;

use admission::AdmissionAttributes;
use api::{Value, apply, meta, selector::LabelSelector, status::Status, validate::FieldError};
use apiserver_core::{body::RequestBody, document, loopback, request::ResourceRequest};
use serde_json::json;

use super::{
    binding::set_condition,
    budget::{disrupted, in_progress, is_unhealthy_and_free},
    done, own_request, posted,
};
use crate::{Outcome, Registry, WriteOptions, update::UpdateContext};

/// How often, and how long apart, a conflict with another writer is tried again.
const TRIES: usize = 20;
const APART: Duration = Duration::from_millis(500);
/// Who writes to budgets.
const MANAGER: &str = "kube-apiserver";

impl Registry {
    pub(super) async fn evict(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        let asked = WriteOptions::of(target, input)?;
        let mut object = posted(target, input, asked.validation)?;
        let attributes = AdmissionAttributes::create(self, target, asked.dry_run);
        self.admission().admit(&attributes, &mut object).await?;
        let eviction = Eviction::of(target, &object, asked.dry_run)?;
        self.admission().validate(&attributes, &object).await?;
        for _ in 0..TRIES {
            let (pod, _) = self.read_object(&target.resource, &target.namespace, &target.name).await?;
            eviction.check(&pod)?;
            if !ignores_budgets(&pod) {
                return self.evict_within_budget(target, &eviction, &pod).await;
            }
            let checked = eviction.or_revision(&pod, !has_ended(&pod));
            match self.delete_evicted(target, &checked).await {
                // A pod that changed meanwhile may have become one that budgets protect.
                Err(status) if is_conflict(&status) && !eviction.names_revision() => backoff().await,
                result => return result.map(|()| done()),
            }
        }
        Err(Status::object_modified(&target.resource, &target.name))
    }

    async fn evict_within_budget(
        &self,
        target: &ResourceRequest,
        eviction: &Eviction,
        pod: &Value,
    ) -> Result<Outcome, Status> {
        let budgets = self.budgets(target, pod).await?;
        let mut checked = eviction.clone();
        match budgets.as_slice() {
            [] => {}
            [budget] if is_unhealthy_and_free(pod, budget) => checked = eviction.or_revision(pod, true),
            [budget] => self.take(target, meta::name(budget), meta::name(pod), eviction.dry_run()).await?,
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                               support.";
                return Err(Status {
                    code: 500,
                    reason: "",
                    message: message.into(),
                    details: None,
                    continue_token: None,
                });
            }
        }
        match self.delete_evicted(target, &checked).await {
            // It may have become healthy: the client should try again.
            Err(status) if is_conflict(&status) && checked.names_revision() && !eviction.names_revision() => {
                Err(in_progress(budgets.first().map(meta::name).unwrap_or_default()))
            }
            result => result.map(|()| done()),
        }
    }

    /// The budgets that select a pod.
    async fn budgets(&self, target: &ResourceRequest, pod: &Value) -> Result<Vec<Value>, Status> {
        let list = self
            .list(&own_request(loopback::find_resource("policy", "v1", "poddisruptionbudgets")?, "list", target, ""))
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

    /// Takes one of the disruptions that a budget allows.
    async fn take(&self, target: &ResourceRequest, budget: &str, pod: &str, dry_run: bool) -> Result<(), Status> {
        let budgets = loopback::find_resource("policy", "v1", "poddisruptionbudgets")?;
        let mut status = own_request(budgets, "update", target, budget);
        status.subresource = "status".into();
        let input = RequestBody { content_type: String::new(), user_agent: MANAGER.into(), body: Default::default() };
        let options = WriteOptions::of(&status, &input)?;
        for _ in 0..TRIES {
            let taken = self
                .change(&status, UpdateContext::own(dry_run), |current| {
                    let mut object = disrupted(current, pod)?;
                    apply::track_update(
                        &options.writer(apply::ApplyTarget::for_resource(budgets, "status")),
                        Some(current),
                        &mut object,
                    );
                    Ok(object)
                })
                .await;
            match taken {
                Err(status) if is_conflict(&status) => backoff().await,
                result => return result.map(|_| ()),
            }
        }
        let message = format!("Timeout: couldn't update PodDisruptionBudget {budget:?} due to conflicts");
        Err(Status {
            code: 504,
            reason: "Timeout",
            message,
            details: Some(json!({"retryAfterSeconds": 10})),
            continue_token: None,
        })
    }

    /// Says in the pod why it ends, and deletes it.
    async fn delete_evicted(&self, target: &ResourceRequest, eviction: &Eviction) -> Result<(), Status> {
        let mut eviction = eviction.clone();
        if !eviction.dry_run() {
            let pod = own_request(target.resource.clone(), "update", target, &target.name);
            let changed = self
                .change(&pod, UpdateContext::own(false), |current| {
                    eviction.check(current)?;
                    let mut object = current.clone();
                    set_condition(
                        &mut object,
                        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                            "message": "Eviction API: evicting"}),
                    );
                    Ok(object)
                })
                .await?;
            if eviction.names_revision() {
                eviction.options["preconditions"]["resourceVersion"] =
                    changed.object["metadata"]["resourceVersion"].clone();
            }
        }
        let body = eviction.options.to_string().into();
        let input = RequestBody { content_type: String::new(), user_agent: String::new(), body };
        self.delete_admitted(&own_request(target.resource.clone(), "delete", target, &target.name), &input)
            .await
            .map(|_| ())
    }
}

/// What a client asks of an eviction: the options of the deletion.
#[derive(Clone, Debug)]
struct Eviction {
    options: Value,
}

impl Eviction {
    fn of(target: &ResourceRequest, eviction: &Value, dry_run: bool) -> Result<Self, Status> {
        if meta::name(eviction) != target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let mut options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        let unsafe_option = "ignoreStoreReadErrorWithClusterBreakingPotential";
        if options[unsafe_option] == true {
            let why = "can not be set for pod eviction, try after removing the option";
            let error = FieldError::invalid(format!("deleteOptions.{unsafe_option}"), true, why);
            return Err(Status::invalid_kind("policy", "Eviction", &target.name, &[error]));
        }
        if dry_run && meta::list_at(&options, &["dryRun"]).is_empty() {
            options["dryRun"] = json!(["All"]);
        }
        Ok(Self { options })
    }

    fn dry_run(&self) -> bool {
        !meta::list_at(&self.options, &["dryRun"]).is_empty()
    }

    fn names_revision(&self) -> bool {
        self.options["preconditions"].get("resourceVersion").is_some_and(Value::is_string)
    }

    /// The same of this revision of the pod, if the client did not name one and it matters.
    fn or_revision(&self, pod: &Value, matters: bool) -> Self {
        let mut out = self.clone();
        if matters && !self.names_revision() {
            let preconditions = meta::field_mut(&mut out.options, "preconditions");
            preconditions.insert("resourceVersion".into(), pod["metadata"]["resourceVersion"].clone());
        }
        out
    }

    fn check(&self, pod: &Value) -> Result<(), Status> {
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
                let details = Some(json!({"name": name, "kind": "Pod"}));
                return Err(Status { code: 409, reason: "Conflict", message, details, continue_token: None });
            }
        }
        Ok(())
    }
}

/// Whether a pod is none of a budget's business: it does not run yet, or not any more.
fn ignores_budgets(pod: &Value) -> bool {
    has_ended(pod) || meta::string_at(pod, &["status", "phase"]) == "Pending"
}

fn has_ended(pod: &Value) -> bool {
    meta::is_deleting(pod) || matches!(meta::string_at(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

fn is_conflict(status: &Status) -> bool {
    status.reason == "Conflict"
}

async fn backoff() {
    tokio::time::sleep(APART.mul_f64(1.0 + 0.1 * fastrand::f64())).await;
}
