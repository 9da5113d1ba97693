//! Update and patch: read, change, prepare, validate, write if unchanged.

use admission::AdmissionAttributes;
use api::{
    Map, Value, apply, meta,
    patch::{self, PatchType},
    schema::Resource,
    status::Status,
    validate::{self, FieldError},
};
use apiextensions::DeferredConverter;
use apiserver_core::{
    body::RequestBody, clock, document::RawExtensions, initializers, loopback, loopback::ObjectKey,
    request::ResourceRequest,
};
use store::{Precondition, Revision};

use super::{
    Outcome, RETRIES, Registry, SaveError, Stored, WriteOptions,
    create::{body, decoded, same_version},
    deletion_waits, precondition_failed, raw, scale_of, set_replicas,
};
use crate::{
    allocate,
    allocate::{AllocationRequest, WriteOutcome},
    strategies,
    strategies::keep,
};

/// What only the server changes.
const SERVERS: &[&str] =
    &["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// The patches that custom resources take.
const CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// Which part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateScope {
    /// Everything but the status, where the resource has one as a subresource.
    Main,
    /// What the subresource of the request may change.
    Subresource,
    /// As [`Self::Main`], but what is admitted is the object's scale.
    Scale,
    /// Whatever the server itself changes, such as the node of a pod. Nobody is asked.
    Server,
}

/// How an object is changed.
#[derive(Clone, Copy)]
pub struct UpdateContext<'a> {
    part: UpdateScope,
    dry_run: bool,
    /// What is asked about other versions, if anything.
    conversions: Option<&'a DeferredConverter>,
}

impl<'a> UpdateContext<'a> {
    /// As a client asks.
    pub fn asked(part: UpdateScope, options: &'a WriteOptions) -> Self {
        Self { part, dry_run: options.dry_run, conversions: Some(&options.conversions) }
    }

    /// On the server's own account.
    pub fn own(dry_run: bool) -> Self {
        Self { part: UpdateScope::Server, dry_run, conversions: None }
    }
}

/// An object that was changed, and what is to be said of it.
pub struct Changed {
    /// The object as it is now.
    pub object: Value,
    /// As it is stored, if it is.
    pub stored: Option<Stored>,
}

impl Changed {
    /// The answer.
    pub fn outcome(self, code: u16) -> Outcome {
        Outcome::Object { object: self.object, stored: self.stored, code }
    }
}

impl Registry {
    pub(super) async fn update(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        self.update_part(target, input, UpdateScope::Main).await
    }

    pub(super) async fn update_part(
        &self,
        target: &ResourceRequest,
        input: &RequestBody,
        part: UpdateScope,
    ) -> Result<Outcome, Status> {
        let resource = &target.resource;
        let options = WriteOptions::of(target, input)?;
        let given = body_of(target, input, &options)?;
        // Who must try again reads the body again.
        let mut first = Some(given);
        let changed = self
            .change(target, UpdateContext::asked(part, &options), |current| {
                let mut object = match first.take() {
                    Some(given) => given,
                    None => body_of(target, input, &options)?,
                };
                options.note(
                    apply::ApplyTarget::for_resource(resource, &target.subresource),
                    Some(current),
                    &mut object,
                );
                Ok(object)
            })
            .await;
        let (changed, code) = match changed {
            Err(status) if status.code == 404 && resource.allows_create_on_update && part == UpdateScope::Main => {
                let mut given = first.map_or_else(|| body_of(target, input, &options), Ok)?;
                meta::metadata_mut(&mut given).remove("resourceVersion");
                options.note(apply::ApplyTarget::for_resource(resource, &target.subresource), None, &mut given);
                (self.create_object(target, given, options.dry_run).await?, 201)
            }
            changed => (changed?, 200),
        };
        Ok(changed.outcome(code))
    }

    pub(super) async fn patch(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        self.patch_part(target, input, UpdateScope::Main).await
    }

    pub(super) async fn patch_part(
        &self,
        target: &ResourceRequest,
        input: &RequestBody,
        part: UpdateScope,
    ) -> Result<Outcome, Status> {
        if input.content_type == super::apply::CONTENT_TYPE {
            return self.apply_part(target, input, part).await;
        }
        let resource = &target.resource;
        let (kind, body) = patch_body(resource, input)?;
        let options = WriteOptions::of(target, input)?;
        let changed = self
            .change(target, UpdateContext::asked(part, &options), |current| {
                let patched = kind.apply_patch(resource.ty, current, &body).map_err(patch_failed)?;
                let (mut object, unknown) = decoded(resource, patched, options.validation)?;
                named_as(target, &mut object)?;
                target.notes.warn_all(unknown);
                options.note(
                    apply::ApplyTarget::for_resource(resource, &target.subresource),
                    Some(current),
                    &mut object,
                );
                Ok(object)
            })
            .await?;
        Ok(changed.outcome(200))
    }

    /// Changes the status of an object on the server's own account, and under its name. Nobody is asked.
    pub async fn change_status(
        &self,
        place: ObjectKey<'_>,
        mut edit: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Changed, Status> {
        let target = loopback::target("update", place, "status");
        let input =
            RequestBody { content_type: String::new(), user_agent: loopback::NAME.into(), body: Default::default() };
        let options = WriteOptions::of(&target, &input)?;
        self.change(&target, UpdateContext::own(false), |current| {
            let mut object = edit(current)?;
            options.note(apply::ApplyTarget::for_resource(&target.resource, "status"), Some(current), &mut object);
            Ok(object)
        })
        .await
    }

    /// Reads the object, lets `edit` make the new one, and writes it if nobody else wrote; tries again otherwise.
    pub(super) async fn change(
        &self,
        target: &ResourceRequest,
        how: UpdateContext<'_>,
        mut edit: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Changed, Status> {
        let (resource, UpdateContext { part, dry_run, .. }) = (&target.resource, how);
        for _ in 0..RETRIES {
            let (current, revision) = self.read_object(resource, &target.namespace, &target.name).await?;
            if part != UpdateScope::Main {
                initializers::visible(target, &current)?;
            }
            let mut edited = match how.conversions {
                Some(conversions) => conversions.run_converted(self.custom(), resource, || edit(&current)).await?,
                None => edit(&current)?,
            };
            let attributes = AdmissionAttributes::update(self, target, &current, dry_run);
            self.admit_change(&attributes, part, &mut edited).await?;
            preconditions(resource, &target.name, &edited, &current, revision)?;
            let reservation = match part {
                UpdateScope::Main | UpdateScope::Scale => {
                    let begin = AllocationRequest { object: &mut edited, current: Some(&current), dry_run };
                    allocate::reserve(self, resource, begin).await?
                }
                UpdateScope::Subresource | UpdateScope::Server => Default::default(),
            };
            let written = self.write_edited(&attributes, part, edited, revision).await;
            let fate = if let Ok(None) = &written { WriteOutcome::Refused } else { WriteOutcome::of(&written) };
            allocate::commit_or_release(self, reservation, fate).await;
            match written? {
                Some(changed) => return Ok(changed),
                // The next round reads again; an object that names a revision then fails its precondition.
                None => continue,
            }
        }
        Err(Status::object_modified(resource, &target.name))
    }

    /// Prepares, validates and writes a changed object; `None` if somebody else wrote in between.
    async fn write_edited(
        &self,
        attributes: &AdmissionAttributes<'_>,
        part: UpdateScope,
        edited: Value,
        revision: Revision,
    ) -> Result<Option<Changed>, Status> {
        let (target, dry_run) = (attributes.target, attributes.dry_run);
        let (resource, name) = (&target.resource, target.name.as_str());
        let current = attributes.old.unwrap_or(&Value::Null);
        self.check_escalation(target, &edited, Some(current)).await?;
        let object = prepare(target, part, edited, current);
        let other = self.in_other_words(target).await?.and_then(|words| raw::compared(current, &words, &target.words));
        let current = other.as_ref().unwrap_or(current);
        let unchanged = apply::equal_ignoring_timestamps(&object, current);
        let errors = match part {
            // Whoever initializes an object makes it.
            UpdateScope::Main if initializers::is_pending(current) => validate::validate_create(resource, &object),
            UpdateScope::Main | UpdateScope::Scale => {
                let mut errors = validate::validate_update(resource, &object, current);
                strategies::of(resource).check(&object, Some(current), &mut errors);
                errors
            }
            UpdateScope::Subresource if initializers::is_pending(current) => {
                let why = "must not update status when the object is uninitialized";
                vec![FieldError::forbidden(&target.subresource, why)]
            }
            UpdateScope::Subresource => {
                let (part, now) = (target.subresource.as_str(), Some(clock::now()));
                validate::validate_subresource_update_at(resource, part, &object, current, now)
            }
            UpdateScope::Server => Vec::new(),
        };
        if !errors.is_empty() {
            return Err(Status::invalid_object(resource, name, &errors));
        }
        target.notes.warn_all(validate::collect_warnings(resource, &object, Some(current)));
        self.validate_change(attributes, part, &object).await?;
        if unchanged {
            return Ok(Some(Changed { object: current.clone(), stored: None }));
        }
        match self.write_or_finish(target, object, revision, dry_run).await {
            Ok((object, stored)) => {
                if stored.is_some() && strategies::of(resource).is_awaited() {
                    self.custom().freshen().await;
                }
                Ok(Some(Changed { object, stored }))
            }
            Err(SaveError::Store(store::StoreError::Conflict { current: Some(_), .. })) => Ok(None),
            Err(unsaved) => Err(unsaved.status(resource, name)),
        }
    }

    /// The words of the raw fields that are stored, where there can be any.
    async fn in_other_words(&self, target: &ResourceRequest) -> Result<Option<RawExtensions>, Status> {
        if !raw::has_any(&target.resource) {
            return Ok(None);
        }
        let record = self.read(&target.resource, &target.namespace, &target.name).await?;
        Ok(Some(raw::stored(&target.resource, &record.value)))
    }

    /// Lets admission change or refuse what a client wants.
    async fn admit_change(
        &self,
        attributes: &AdmissionAttributes<'_>,
        part: UpdateScope,
        edited: &mut Value,
    ) -> Result<(), Status> {
        match part {
            UpdateScope::Server => Ok(()),
            UpdateScope::Main | UpdateScope::Subresource => self.admission().admit(attributes, edited).await,
            UpdateScope::Scale => {
                let before = attributes.old.map(|old| scale_of(attributes.resource(), old));
                let attributes = attributes.with_old(before.as_ref());
                let mut scale = scale_of(attributes.resource(), edited);
                self.admission().admit(&attributes, &mut scale).await?;
                set_replicas(attributes.resource(), edited, &scale);
                Ok(())
            }
        }
    }

    /// Lets admission refuse what would be written.
    async fn validate_change(
        &self,
        attributes: &AdmissionAttributes<'_>,
        part: UpdateScope,
        object: &Value,
    ) -> Result<(), Status> {
        match part {
            UpdateScope::Server => Ok(()),
            UpdateScope::Main | UpdateScope::Subresource => self.admission().validate(attributes, object).await,
            UpdateScope::Scale => {
                let before = attributes.old.map(|old| scale_of(attributes.resource(), old));
                let attributes = attributes.with_old(before.as_ref());
                self.admission().validate(&attributes, &scale_of(attributes.resource(), object)).await
            }
        }
    }

    /// Writes the object, or removes it if it was only waiting for its last finalizer.
    async fn write_or_finish(
        &self,
        target: &ResourceRequest,
        object: Value,
        revision: Revision,
        dry_run: bool,
    ) -> Result<(Value, Option<Stored>), SaveError> {
        let resource = &target.resource;
        if meta::is_deleting(&object) && !deletion_waits(resource, &object) {
            self.remove(resource, &object, revision, dry_run).await?;
            return Ok((object, None));
        }
        let guard = Precondition::Revision(revision);
        let saved = self.save_with(resource, object, guard, dry_run, &target.words).await?;
        if initializers::rejection(&saved.0).is_some() {
            // Those who wait for it have seen why.
            let revision = saved.1.as_ref().map_or(revision, |(_, revision)| *revision);
            self.remove(resource, &saved.0, revision, dry_run).await?;
        }
        Ok(saved)
    }
}

/// The object that a client wants to be there instead.
fn body_of(target: &ResourceRequest, input: &RequestBody, options: &WriteOptions) -> Result<Value, Status> {
    let mut given = body(target, &target.resource, input, options.validation)?;
    same_version(target, &given)?;
    named_as(target, &mut given)?;
    Ok(given)
}

/// 422: objects of this kind are changed only by who has read them.
fn unconditional(resource: &Resource, name: &str) -> Status {
    let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
    match resource.custom_schema {
        Some(_) => Status::invalid_kind(resource.group, resource.name, name, &[error]),
        None => Status::invalid_object(resource, name, &[error]),
    }
}

/// The revision that a client's object names; a patch that does not touch it carries the current one.
fn part_revision(object: &Value) -> &str {
    meta::string_at(object, &["metadata", "resourceVersion"])
}

pub(super) fn patch_body(resource: &Resource, input: &RequestBody) -> Result<(PatchType, Value), Status> {
    let kind = PatchType::from_content_type(&input.content_type);
    let kind = match resource.custom_schema {
        // Definitions do not say how lists of theirs are patched.
        Some(_) => {
            kind.filter(|kind| *kind != PatchType::Strategic).ok_or_else(|| Status::unsupported_media_type(CUSTOM))?
        }
        None => kind.ok_or_else(unknown_patch)?,
    };
    let body = serde_json::from_slice(&input.body)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    Ok((kind, body))
}

/// A patch of a kind that no path takes.
fn unknown_patch() -> Status {
    let message = "415: Unsupported Media Type".to_owned();
    Status {
        code: 415,
        reason: "UnsupportedMediaType",
        message,
        details: Some(Value::Object(Map::new())),
        continue_token: None,
    }
}

pub(super) fn patch_failed(error: patch::PatchError) -> Status {
    match error {
        patch::PatchError::Malformed(message) => Status::bad_request(message),
        patch::PatchError::Unprocessable(message) => Status::unprocessable_patch(message),
        patch::PatchError::Inapplicable { .. } => Status::unprocessable_patch(error.to_string()),
        patch::PatchError::Failed(message) => Status::from_code(500, message),
    }
}

/// The object must be the one that the path names.
pub(super) fn named_as(target: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let (name, namespace) = (meta::name(object).to_owned(), meta::namespace(object).to_owned());
    if !name.is_empty() && name != target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let namespaced = target.resource.is_namespaced();
    if namespaced && !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
            target.namespace
        )));
    }
    let metadata = meta::metadata_mut(object);
    metadata.insert("name".into(), target.name.clone().into());
    if namespaced {
        metadata.insert("namespace".into(), target.namespace.clone().into());
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Revision and UID, where the client's object names them, must be the current ones.
fn preconditions(
    resource: &Resource,
    name: &str,
    edited: &Value,
    current: &Value,
    revision: Revision,
) -> Result<(), Status> {
    let (given, uid) = (part_revision(edited), meta::uid(edited));
    if !uid.is_empty() && uid != meta::uid(current) {
        return Err(precondition_failed(resource, current, "UID", uid, meta::uid(current)));
    }
    if given.is_empty() && resource.requires_resource_version {
        return Err(unconditional(resource, name));
    }
    if !given.is_empty() && given != revision.to_string() {
        return Err(Status::object_modified(resource, name));
    }
    Ok(())
}

/// The new object with what the client may not change taken from the current one.
fn prepare(target: &ResourceRequest, part: UpdateScope, mut object: Value, current: &Value) -> Value {
    let resource = &target.resource;
    if part == UpdateScope::Subresource {
        object = strategies::through(resource, &target.subresource, object, current);
    }
    keep(&mut object["metadata"], &current["metadata"], SERVERS);
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), current["metadata"]["resourceVersion"].clone());
    let whole = matches!(part, UpdateScope::Main | UpdateScope::Scale);
    if whole && resource.subresource("status").is_some() {
        keep(&mut object, current, &["status"]);
    }
    if whole {
        strategies::of(resource).prepare_update(&mut object, current);
    }
    let bumps = match part {
        UpdateScope::Main | UpdateScope::Scale => strategies::of(resource).bumps_generation(&object, current),
        UpdateScope::Subresource => strategies::specification(&object) != strategies::specification(current),
        UpdateScope::Server => false,
    };
    if resource.tracks_generation && bumps {
        let generation = meta::integer_at(current, &["metadata", "generation"]) + 1;
        meta::metadata_mut(&mut object).insert("generation".into(), generation.into());
    }
    object
}
