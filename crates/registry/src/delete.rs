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

use super::{Outcome, RETRIES, Registry, SaveError, deletion_waits};
use crate::strategies;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What a client asks of a deletion.
#[derive(Debug, Default)]
struct Options {
    grace: Option<i64>,
    policy: Option<String>,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
    /// Whether nobody need be asked.
    admitted: bool,
    /// As admission sees them.
    shown: Value,
}

/// What became of an object.
enum Deleted {
    Gone(Value),
    Waiting(Value),
}

impl Registry {
    pub(super) async fn delete(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        self.delete_with(target, &Options::of(input, &target.query)?).await
    }

    /// As [`Self::delete`], for who was admitted as something else: an eviction.
    pub(super) async fn delete_admitted(
        &self,
        target: &ResourceRequest,
        input: &RequestBody,
    ) -> Result<Outcome, Status> {
        let options = Options { admitted: true, ..Options::of(input, &target.query)? };
        self.delete_with(target, &options).await
    }

    async fn delete_with(&self, target: &ResourceRequest, options: &Options) -> Result<Outcome, Status> {
        let resource = &target.resource;
        let object = match self.delete_one(target, &target.namespace, &target.name, options).await? {
            Deleted::Gone(object) if !resource.returns_deleted => {
                return Ok(Outcome::Success(success(resource, &object)));
            }
            Deleted::Gone(object) | Deleted::Waiting(object) => object,
        };
        Ok(Outcome::Object { object, stored: None, code: 200 })
    }

    pub(super) async fn delete_collection(
        &self,
        target: &ResourceRequest,
        input: &RequestBody,
    ) -> Result<Outcome, Status> {
        let options = Options::of(input, &target.query)?;
        let list = self.list(target).await?;
        for item in &list.items {
            let object = document::decode_record(&item.record).map_err(Status::internal_error)?;
            match self.delete_one(target, meta::namespace(&object), meta::name(&object), &options).await {
                // Somebody else was faster: that is what was asked for.
                Err(status) if status.code == 404 => {}
                result => {
                    result?;
                }
            }
        }
        Ok(Outcome::List(list))
    }

    async fn delete_one(
        &self,
        target: &ResourceRequest,
        namespace: &str,
        name: &str,
        options: &Options,
    ) -> Result<Deleted, Status> {
        let resource = &target.resource;
        for _ in 0..RETRIES {
            let (object, revision) = self.read_object(resource, namespace, name).await?;
            options.check(resource, &object)?;
            if !options.admitted {
                let attributes = AdmissionAttributes::delete(self, target, &object, &options.shown);
                self.admission().allow(&attributes).await?;
            }
            match self.delete_revision(resource, object, revision, options).await {
                Err(SaveError::Store(store::StoreError::Conflict { current: Some(_), .. })) => continue,
                result => return result.map_err(|unsaved| unsaved.status(resource, name)),
            }
        }
        Err(Status::object_modified(resource, name))
    }

    async fn delete_revision(
        &self,
        resource: &Resource,
        object: Value,
        revision: Revision,
        options: &Options,
    ) -> Result<Deleted, SaveError> {
        let marked = mark(resource, &object, options);
        if !deletion_waits(resource, &marked) {
            let graceful = strategies::of(resource).grace_period(&object, options.grace).is_some();
            if !graceful {
                // Who never waits was never marked.
                self.remove(resource, &object, revision, options.dry_run).await?;
                return Ok(Deleted::Gone(object));
            }
            // Whoever watches sees that the wait is over before the object is gone.
            let (saved, _) = self.save(resource, marked, Precondition::Revision(revision), options.dry_run).await?;
            let revision = meta::string_at(&saved, &["metadata", "resourceVersion"]).parse().unwrap_or(revision);
            self.remove(resource, &saved, revision, options.dry_run).await?;
            return Ok(Deleted::Gone(saved));
        }
        if marked == object {
            return Ok(Deleted::Waiting(object));
        }
        let (saved, _) = self.save(resource, marked, Precondition::Revision(revision), options.dry_run).await?;
        Ok(Deleted::Waiting(saved))
    }
}

/// The object as it waits for its deletion: time, grace and finalizers set.
fn mark(resource: &Resource, object: &Value, options: &Options) -> Value {
    let mut marked = object.clone();
    let strategy = strategies::of(resource);
    finalizers(&mut marked, options.policy.as_deref().or(resource.orphans_by_default.then_some("Orphan")));
    let grace = strategy.grace_period(object, options.grace).unwrap_or_default();
    let earlier = meta::value_at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let began = meta::is_deleting(object);
    if !began || earlier.is_some_and(|earlier| grace < earlier) {
        let time = clock::now() + jiff::SignedDuration::from_secs(grace.min(i64::from(i32::MAX)));
        let metadata = meta::metadata_mut(&mut marked);
        metadata.insert("deletionTimestamp".into(), api::time::seconds(time).into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if resource.tracks_generation && !began {
            let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or_default() + 1;
            metadata.insert("generation".into(), generation.into());
        }
        strategy.begin_deletion(&mut marked);
    }
    marked
}

/// The finalizers that a propagation policy stands for.
fn finalizers(object: &mut Value, policy: Option<&str>) {
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

fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({"name": meta::name(object), "kind": resource.name, "uid": meta::uid(object)});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

impl Options {
    fn of(input: &RequestBody, query: &Query) -> Result<Self, Status> {
        let ty = schema()
            .type_named("meta/v1.DeleteOptions")
            .ok_or_else(|| Status::internal_error("the schema lacks DeleteOptions"))?;
        let body = input.decode_options(ty, "DeleteOptions")?;
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
        Ok(Self { grace, policy, uid, revision, dry_run, admitted: false, shown })
    }

    /// The object must be the one that is meant.
    fn check(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let (uid, revision) = (meta::uid(object), meta::string_at(object, &["metadata", "resourceVersion"]));
        let (what, wanted, found, perhaps) = match (&self.uid, &self.revision) {
            (Some(wanted), _) if wanted != uid => ("UID", wanted, uid, "deleted and then recreated"),
            (_, Some(wanted)) if wanted != revision => ("ResourceVersion", wanted, revision, "modified"),
            _ => return Ok(()),
        };
        if strategies::of(resource).deletes_like_changes() {
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
