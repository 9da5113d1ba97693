//! Delete: grace periods, finalizers, propagation and preconditions, for one object or a collection.

use admission::AdmissionAttributes;
use api::{
    Value, decode, meta,
    schema::{Resource, schema},
    status::Status,
    validate::FieldError,
};
use apiserver_core::{body::RequestBody, clock, document, query::Query, request::ResourceRequest};
use serde_json::json;
use store::{Precondition, Revision};

use super::{RETRIES, Registry, RequestOutcome, SaveError, deletion_waits};
use crate::strategies;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Parsed `DeleteOptions` of body and query.
#[derive(Debug, Default)]
struct DeleteOptions {
    grace_period: Option<i64>,
    policy: Option<String>,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
    /// Whether admission has already run, as for an eviction.
    admitted: bool,
    /// The `DeleteOptions` object that admission sees.
    admission_options: Value,
}

/// The result of a deletion.
enum DeleteOutcome {
    Gone(Value),
    Waiting(Value),
}

impl Registry {
    pub(super) async fn delete(&self, request: &ResourceRequest, body: &RequestBody) -> Result<RequestOutcome, Status> {
        self.delete_with(request, &DeleteOptions::from_request(body, &request.query)?).await
    }

    /// As [`Self::delete`], for an eviction that admission has accepted.
    pub(super) async fn delete_admitted(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let options = DeleteOptions { admitted: true, ..DeleteOptions::from_request(body, &request.query)? };
        self.delete_with(request, &options).await
    }

    async fn delete_with(&self, request: &ResourceRequest, options: &DeleteOptions) -> Result<RequestOutcome, Status> {
        let resource = &request.resource;
        let object = match self.delete_object(request, &request.namespace, &request.name, options).await? {
            DeleteOutcome::Gone(object) if !resource.returns_deleted => {
                return Ok(RequestOutcome::Success(deletion_success(resource, &object)));
            }
            DeleteOutcome::Gone(object) | DeleteOutcome::Waiting(object) => object,
        };
        Ok(RequestOutcome::Object { object, stored: None, code: 200 })
    }

    pub(super) async fn delete_collection(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let options = DeleteOptions::from_request(body, &request.query)?;
        let list = self.list(request).await?;
        for item in &list.items {
            let object = document::decode_record(&item.record).map_err(Status::internal_error)?;
            match self.delete_object(request, meta::namespace(&object), meta::name(&object), &options).await {
                // The object is already gone, as requested.
                Err(status) if status.is_not_found() => {}
                result => {
                    result?;
                }
            }
        }
        Ok(RequestOutcome::List(list))
    }

    async fn delete_object(
        &self,
        request: &ResourceRequest,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteOutcome, Status> {
        let resource = &request.resource;
        let mut marked = None;
        for _ in 0..RETRIES {
            let (object, revision) = match self.read_object(resource, namespace, name).await {
                // A component that saw the final grace period, such as the kubelet, was faster.
                Err(status) if status.is_not_found() && marked.is_some() => break,
                read => read?,
            };
            options.check_preconditions(resource, &object)?;
            if !options.admitted {
                let attributes = AdmissionAttributes::for_delete(self, request, &object, &options.admission_options);
                self.admission().admit_without_object(&attributes).await?;
            }
            match self.delete_revision(resource, object, revision, options, &mut marked).await {
                Err(SaveError::Store(store::StoreError::Conflict { current, .. }))
                    if current.is_some() || marked.is_some() =>
                {
                    continue;
                }
                result => return result.map_err(|unsaved| unsaved.into_status(resource, name)),
            }
        }
        marked.map(DeleteOutcome::Gone).ok_or_else(|| Status::object_modified(resource, name))
    }

    /// Deletes or marks one revision. `last_marked` is set once watchers have seen the final grace period.
    async fn delete_revision(
        &self,
        resource: &Resource,
        object: Value,
        revision: Revision,
        options: &DeleteOptions,
        last_marked: &mut Option<Value>,
    ) -> Result<DeleteOutcome, SaveError> {
        let marked = mark_for_deletion(resource, &object, options);
        if !deletion_waits(resource, &marked) {
            let graceful = strategies::strategy_for(resource).grace_period(&object, options.grace_period).is_some();
            if !graceful {
                // Without a grace period the object is never marked.
                self.remove_object(resource, &object, revision, options.dry_run).await?;
                return Ok(DeleteOutcome::Gone(object));
            }
            // Watchers observe the final grace period before the deletion.
            let (saved, _) =
                self.save_object(resource, marked, Precondition::Revision(revision), options.dry_run).await?;
            let revision = meta::string_at(&saved, &["metadata", "resourceVersion"]).parse().unwrap_or(revision);
            let saved = last_marked.insert(saved);
            self.remove_object(resource, saved, revision, options.dry_run).await?;
            return Ok(DeleteOutcome::Gone(saved.clone()));
        }
        if marked == object {
            return Ok(DeleteOutcome::Waiting(object));
        }
        let (saved, _) = self.save_object(resource, marked, Precondition::Revision(revision), options.dry_run).await?;
        Ok(DeleteOutcome::Waiting(saved))
    }
}

/// Sets deletion timestamp, grace period and finalizers.
fn mark_for_deletion(resource: &Resource, object: &Value, options: &DeleteOptions) -> Value {
    let mut marked = object.clone();
    let strategy = strategies::strategy_for(resource);
    set_propagation_finalizers(
        &mut marked,
        options.policy.as_deref().or(resource.orphans_by_default.then_some("Orphan")),
    );
    let grace = strategy.grace_period(object, options.grace_period).unwrap_or_default();
    let earlier = meta::value_at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let began = meta::is_deleting(object);
    if !began || earlier.is_some_and(|earlier| grace < earlier) {
        let time = clock::now() + jiff::SignedDuration::from_secs(grace.min(i64::from(i32::MAX)));
        let metadata = meta::metadata_mut(&mut marked);
        metadata.insert("deletionTimestamp".into(), api::time::format_seconds(time).into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if resource.tracks_generation && !began {
            let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or_default() + 1;
            metadata.insert("generation".into(), generation.into());
        }
        strategy.begin_deletion(&mut marked);
    }
    marked
}

/// Replaces the finalizers of propagation policies by that of `policy`.
fn set_propagation_finalizers(object: &mut Value, policy: Option<&str>) {
    let Some(policy) = policy else { return };
    let mut list: Vec<String> = meta::finalizers(object).map(str::to_owned).collect();
    list.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match policy {
        "Foreground" => list.push(FOREGROUND.to_owned()),
        "Orphan" => list.push(ORPHAN.to_owned()),
        _ => {}
    }
    let metadata = meta::metadata_mut(object);
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(list));
    }
}

fn deletion_success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({"name": meta::name(object), "kind": resource.name, "uid": meta::uid(object)});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

impl DeleteOptions {
    fn from_request(body: &RequestBody, query: &Query) -> Result<Self, Status> {
        let ty = schema()
            .type_named("meta/v1.DeleteOptions")
            .ok_or_else(|| Status::internal_error("the schema lacks DeleteOptions"))?;
        let body = body.decode_options(ty, "DeleteOptions")?;
        let body = decode::canonicalize(ty, body).map_err(|error| Status::bad_request(error.to_string()))?.object;
        let text =
            |path: &[&str]| Some(meta::string_at(&body, path)).filter(|text| !text.is_empty()).map(str::to_owned);
        let grace = match query.get("gracePeriodSeconds").map(str::parse) {
            Some(Ok(grace)) => Some(grace),
            Some(Err(_)) => return Err(Status::bad_request("gracePeriodSeconds is not a number")),
            None => body.get("gracePeriodSeconds").and_then(Value::as_i64),
        };
        let policy = query.get("propagationPolicy").map(str::to_owned).or(text(&["propagationPolicy"]));
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let policy = policy.or(orphan.map(|orphan| if orphan { "Orphan" } else { "Background" }.to_owned()));
        if let Some(other) = policy.as_deref().filter(|p| !["Foreground", "Background", "Orphan"].contains(p)) {
            let known = &["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported("propagationPolicy", other, known);
            return Err(Status::invalid_kind("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        let dry_run = query.get("dryRun") == Some("All") || meta::list_at(&body, &["dryRun"]).contains(&"All".into());
        let mut shown = body.clone();
        let texts = [("kind", "DeleteOptions"), ("apiVersion", "meta.k8s.io/v1")];
        texts.into_iter().for_each(|(field, text)| shown[field] = text.into());
        if dry_run {
            shown["dryRun"] = json!(["All"]);
        }
        if let Some(grace) = grace {
            shown["gracePeriodSeconds"] = grace.into();
        }
        if let Some(policy) = &policy {
            shown["propagationPolicy"] = policy.as_str().into();
        }
        let (uid, revision) = (text(&["preconditions", "uid"]), text(&["preconditions", "resourceVersion"]));
        Ok(Self { grace_period: grace, policy, uid, revision, dry_run, admitted: false, admission_options: shown })
    }

    /// 409 if UID or `resourceVersion` preconditions do not match.
    fn check_preconditions(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let (uid, revision) = (meta::uid(object), meta::string_at(object, &["metadata", "resourceVersion"]));
        let (what, wanted, found, perhaps) = match (&self.uid, &self.revision) {
            (Some(wanted), _) if wanted != uid => ("UID", wanted, uid, "deleted and then recreated"),
            (_, Some(wanted)) if wanted != revision => ("ResourceVersion", wanted, revision, "modified"),
            _ => return Ok(()),
        };
        if strategies::strategy_for(resource).reports_update_conflict() {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(Status::conflict(resource, meta::name(object), &why));
        }
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been \
             {perhaps}"
        );
        Err(Status::precondition_failed(resource, meta::name(object), &why))
    }
}
