//! Update and patch: read, change, prepare, validate, write if unchanged.

use admission::AdmissionAttributes;
use api::{
    Map, Value, apply, decode,
    disabled_fields::drop_disabled_fields,
    json, meta,
    patch::{self, PatchType},
    schema::Resource,
    status::Status,
    validate::{self, FieldError},
};
use apiextensions::DeferredConverter;
use apiserver_core::{
    body::RequestBody,
    clock,
    document::RawExtensions,
    initializers,
    loopback::{self, ObjectKey},
    request::ResourceRequest,
};
use store::{Precondition, Revision};

use super::{
    RETRIES, Registry, RequestOutcome, SaveError, StoredDocument, WriteOptions, deletion_waits, precondition_failed,
    raw_extensions,
};
use crate::{
    allocate::{self, AllocationRequest, WriteOutcome},
    object_decoder::{check_api_version, decode_request_body, decode_value},
    scale_object::{scale_of, set_replicas},
    strategies::{self, copy_fields},
    updated_object::UpdatedObject,
};

/// Metadata fields that only the server changes.
const SERVER_FIELDS: &[&str] =
    &["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// The content type of an applied configuration.
pub const APPLY_PATCH_TYPE: &str = "application/apply-patch+yaml";

/// Patch types that custom resources accept.
const CUSTOM_PATCH_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// The part of an object that a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateScope {
    /// Everything but the status, where the resource has one as a subresource.
    Main,
    /// The fields that the subresource of the request may change.
    Subresource,
    /// As [`Self::Main`], but admission sees the object's `Scale`.
    Scale,
    /// A change by the server itself, such as binding a pod; without admission and validation.
    Server,
}

/// Options of one update.
#[derive(Clone, Copy)]
pub struct UpdateContext<'a> {
    scope: UpdateScope,
    dry_run: bool,
    /// Converts between versions of a custom resource for managed fields.
    converter: Option<&'a DeferredConverter>,
}

impl<'a> UpdateContext<'a> {
    /// The context of a client's write.
    pub fn for_client(scope: UpdateScope, options: &'a WriteOptions) -> Self {
        Self { scope, dry_run: options.dry_run, converter: Some(&options.converter) }
    }

    /// The context of a write by the server itself.
    pub fn for_server(dry_run: bool) -> Self {
        Self { scope: UpdateScope::Server, dry_run, converter: None }
    }
}

impl Registry {
    pub(super) async fn update(&self, request: &ResourceRequest, body: &RequestBody) -> Result<RequestOutcome, Status> {
        self.update_in_scope(request, body, UpdateScope::Main).await
    }

    pub(super) async fn update_in_scope(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
        scope: UpdateScope,
    ) -> Result<RequestOutcome, Status> {
        let resource = &request.resource;
        let options = WriteOptions::from_request(request, body)?;
        let given = decode_replacement(request, body, &options)?;
        // A retry decodes the body again.
        let mut first = Some(given);
        let changed = self
            .update_object(request, UpdateContext::for_client(scope, &options), |current| {
                let mut object = match first.take() {
                    Some(given) => given,
                    None => decode_replacement(request, body, &options)?,
                };
                options.track_managed_fields(
                    apply::ApplyTarget::for_resource(resource, &request.subresource),
                    Some(current),
                    &mut object,
                );
                Ok(object)
            })
            .await;
        let (changed, code) = match changed {
            Err(status) if status.is_not_found() && resource.allows_create_on_update && scope == UpdateScope::Main => {
                let mut given = first.map_or_else(|| decode_replacement(request, body, &options), Ok)?;
                meta::metadata_mut(&mut given).remove("resourceVersion");
                options.track_managed_fields(
                    apply::ApplyTarget::for_resource(resource, &request.subresource),
                    None,
                    &mut given,
                );
                (self.create_object(request, given, options.dry_run).await?, 201)
            }
            changed => (changed?, 200),
        };
        Ok(changed.into_outcome(code))
    }

    pub(super) async fn patch(&self, request: &ResourceRequest, body: &RequestBody) -> Result<RequestOutcome, Status> {
        self.patch_in_scope(request, body, UpdateScope::Main).await
    }

    pub(super) async fn patch_in_scope(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
        scope: UpdateScope,
    ) -> Result<RequestOutcome, Status> {
        if body.content_type == APPLY_PATCH_TYPE {
            return self.apply_in_scope(request, body, scope).await;
        }
        let resource = &request.resource;
        let (kind, patch) = decode_patch_body(resource, body)?;
        let options = WriteOptions::from_request(request, body)?;
        let changed = self
            .update_object(request, UpdateContext::for_client(scope, &options), |current| {
                let patched = kind.apply_patch(resource.ty, current, &patch).map_err(patch_error_status)?;
                let decoded = decode_value(resource, patched, options.validation);
                let (mut object, unknown) = match decoded {
                    Err(status) if status.is_bad_request() && resource.custom_schema.is_none() => {
                        return Err(undecodable_result(resource, kind, current, &patch).unwrap_or(status));
                    }
                    decoded => decoded?,
                };
                check_identity(request, &mut object)?;
                request.warnings.add_warnings(unknown);
                options.track_managed_fields(
                    apply::ApplyTarget::for_resource(resource, &request.subresource),
                    Some(current),
                    &mut object,
                );
                Ok(object)
            })
            .await?;
        Ok(changed.into_outcome(200))
    }

    /// Updates the status of an object as the server itself, with the server's field manager and without admission.
    pub async fn update_status(
        &self,
        key: ObjectKey<'_>,
        mut edit: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<UpdatedObject, Status> {
        let request = loopback::loopback_request("update", key, "status");
        let body = RequestBody {
            content_type: String::new(),
            user_agent: loopback::FIELD_MANAGER.into(),
            body: Default::default(),
        };
        let options = WriteOptions::from_request(&request, &body)?;
        self.update_object(&request, UpdateContext::for_server(false), |current| {
            let mut object = edit(current)?;
            options.track_managed_fields(
                apply::ApplyTarget::for_resource(&request.resource, "status"),
                Some(current),
                &mut object,
            );
            Ok(object)
        })
        .await
    }

    /// Reads the object, lets `edit` build the new one and writes it; retries if another writer was faster.
    pub(super) async fn update_object(
        &self,
        request: &ResourceRequest,
        context: UpdateContext<'_>,
        mut edit: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<UpdatedObject, Status> {
        let (resource, UpdateContext { scope, dry_run, .. }) = (&request.resource, context);
        for _ in 0..RETRIES {
            let (current, revision) = self.read_object(resource, &request.namespace, &request.name).await?;
            if scope != UpdateScope::Main {
                initializers::check_visible(request, &current)?;
            }
            let mut edited = match context.converter {
                Some(converter) => converter.run_converted(self.crds(), resource, || edit(&current)).await?,
                None => edit(&current)?,
            };
            let attributes = AdmissionAttributes::for_update(self, request, &current, dry_run);
            self.admit_change(&attributes, scope, &mut edited).await?;
            check_preconditions(resource, &request.name, &edited, &current, revision)?;
            let reservation = match scope {
                UpdateScope::Main | UpdateScope::Scale => {
                    let begin = AllocationRequest { object: &mut edited, current: Some(&current), dry_run };
                    allocate::reserve(self, strategies::strategy_for(resource).allocator(), begin).await?
                }
                UpdateScope::Subresource | UpdateScope::Server => Default::default(),
            };
            let written = self.write_edited(&attributes, scope, edited, revision).await;
            let fate =
                if let Ok(None) = &written { WriteOutcome::Rejected } else { WriteOutcome::from_result(&written) };
            allocate::commit_or_release(self, reservation, fate).await;
            match written? {
                Some(changed) => return Ok(changed),
                // The next attempt reads again; an object with a resourceVersion then fails its precondition.
                None => continue,
            }
        }
        Err(Status::object_modified(resource, &request.name))
    }

    /// Prepares, validates and writes a changed object; `None` on a write conflict.
    async fn write_edited(
        &self,
        attributes: &AdmissionAttributes<'_>,
        scope: UpdateScope,
        edited: Value,
        revision: Revision,
    ) -> Result<Option<UpdatedObject>, Status> {
        let (request, dry_run) = (attributes.target, attributes.dry_run);
        let (resource, name) = (&request.resource, request.name.as_str());
        let current = attributes.old.unwrap_or(&Value::Null);
        self.check_escalation_of_write(request, &edited, Some(current)).await?;
        let object = prepare_update(request, scope, edited, current);
        let other = self
            .read_raw_extensions(request)
            .await?
            .and_then(|words| raw_extensions::with_changed_raw_fields(current, &words, &request.raw_extensions));
        let current = other.as_ref().unwrap_or(current);
        let unchanged = apply::equal_ignoring_timestamps(&object, current);
        let errors = match scope {
            // Changes of an uninitialized object are validated like a create.
            UpdateScope::Main if initializers::is_pending(current) => validate::validate_create(resource, &object),
            UpdateScope::Main | UpdateScope::Scale => {
                let mut errors = validate::validate_update(resource, &object, current);
                strategies::strategy_for(resource).validate_object(&object, Some(current), &mut errors);
                errors
            }
            UpdateScope::Subresource if initializers::is_pending(current) => {
                let why = "must not update status when the object is uninitialized";
                vec![FieldError::forbidden(&request.subresource, why)]
            }
            UpdateScope::Subresource => {
                let (scope, now) = (request.subresource.as_str(), Some(clock::now()));
                validate::validate_subresource_update_at(resource, scope, &object, current, now)
            }
            UpdateScope::Server => Vec::new(),
        };
        if !errors.is_empty() {
            return Err(Status::invalid_object(resource, name, &errors));
        }
        request.warnings.add_warnings(validate::collect_warnings(resource, &object, Some(current)));
        self.validate_change(attributes, scope, &object).await?;
        if unchanged {
            return Ok(Some(UpdatedObject { object: current.clone(), stored: None }));
        }
        match self.write_or_finish(request, object, revision, dry_run).await {
            Ok((object, stored)) => {
                if stored.is_some() && strategies::strategy_for(resource).awaits_index() {
                    self.crds().wait_until_fresh().await;
                }
                Ok(Some(UpdatedObject { object, stored }))
            }
            Err(SaveError::Store(store::StoreError::Conflict { current: Some(_), .. })) => Ok(None),
            Err(unsaved) => Err(unsaved.into_status(resource, name)),
        }
    }

    /// Reads the raw fields of the stored document; `None` if the resource has none.
    async fn read_raw_extensions(&self, request: &ResourceRequest) -> Result<Option<RawExtensions>, Status> {
        if !raw_extensions::has_raw_fields(&request.resource) {
            return Ok(None);
        }
        let record = self.read_record(&request.resource, &request.namespace, &request.name).await?;
        Ok(Some(raw_extensions::raw_extensions_in_document(&request.resource, &record.value)))
    }

    /// Runs mutating admission.
    async fn admit_change(
        &self,
        attributes: &AdmissionAttributes<'_>,
        scope: UpdateScope,
        edited: &mut Value,
    ) -> Result<(), Status> {
        match scope {
            UpdateScope::Server => Ok(()),
            UpdateScope::Main | UpdateScope::Subresource => self.admission().admit(attributes, edited).await,
            UpdateScope::Scale => {
                let before = attributes.old.map(|old| scale_of(attributes.resource(), old));
                let attributes = attributes.with_old_object(before.as_ref());
                let mut scale = scale_of(attributes.resource(), edited);
                self.admission().admit(&attributes, &mut scale).await?;
                set_replicas(attributes.resource(), edited, &scale);
                Ok(())
            }
        }
    }

    /// Runs validating admission.
    async fn validate_change(
        &self,
        attributes: &AdmissionAttributes<'_>,
        scope: UpdateScope,
        object: &Value,
    ) -> Result<(), Status> {
        match scope {
            UpdateScope::Server => Ok(()),
            UpdateScope::Main | UpdateScope::Subresource => self.admission().validate(attributes, object).await,
            UpdateScope::Scale => {
                let before = attributes.old.map(|old| scale_of(attributes.resource(), old));
                let attributes = attributes.with_old_object(before.as_ref());
                self.admission().validate(&attributes, &scale_of(attributes.resource(), object)).await
            }
        }
    }

    /// Writes the object, or removes it if its last finalizer is gone.
    async fn write_or_finish(
        &self,
        request: &ResourceRequest,
        object: Value,
        revision: Revision,
        dry_run: bool,
    ) -> Result<(Value, Option<StoredDocument>), SaveError> {
        let resource = &request.resource;
        if meta::is_deleting(&object) && !deletion_waits(resource, &object) {
            self.remove_object(resource, &object, revision, dry_run).await?;
            return Ok((object, None));
        }
        let guard = Precondition::Revision(revision);
        let saved = self.save_object_with(resource, object, guard, dry_run, &request.raw_extensions).await?;
        if initializers::rejection_status(&saved.0).is_some() {
            // Waiting creates have observed the rejection.
            let revision = saved.1.as_ref().map_or(revision, |(_, revision)| *revision);
            self.remove_object(resource, &saved.0, revision, dry_run).await?;
        }
        Ok(saved)
    }
}

/// Decodes the replacement object of an update request.
fn decode_replacement(request: &ResourceRequest, body: &RequestBody, options: &WriteOptions) -> Result<Value, Status> {
    let mut given = decode_request_body(request, &request.resource, body, options.validation)?;
    check_api_version(request, &given)?;
    check_identity(request, &mut given)?;
    Ok(given)
}

/// 422 for an update without `resourceVersion` of a resource that requires one.
fn missing_resource_version(resource: &Resource, name: &str) -> Status {
    let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
    match resource.custom_schema {
        Some(_) => Status::invalid_kind(resource.group, resource.name, name, &[error]),
        None => Status::invalid_object(resource, name, &[error]),
    }
}

/// The `resourceVersion` of a client's object; `0` is none. A patch that does not set it carries the current one.
fn requested_resource_version(object: &Value) -> &str {
    match meta::string_at(object, &["metadata", "resourceVersion"]) {
        "0" => "",
        version => version,
    }
}

pub(super) fn decode_patch_body(resource: &Resource, body: &RequestBody) -> Result<(PatchType, Value), Status> {
    let kind = PatchType::from_content_type(&body.content_type);
    let kind = match resource.custom_schema {
        // CRD schemas have no patch strategies.
        Some(_) => kind
            .filter(|kind| *kind != PatchType::Strategic)
            .ok_or_else(|| Status::unsupported_media_type(CUSTOM_PATCH_TYPES))?,
        None => kind.ok_or_else(unsupported_patch_type)?,
    };
    let patch = kind.decode_patch(&body.body).map_err(patch_error_status)?;
    Ok((kind, patch))
}

/// 415 for an unknown patch type.
fn unsupported_patch_type() -> Status {
    let message = "415: Unsupported Media Type".to_owned();
    Status::new(415, "UnsupportedMediaType", message).with_details(Value::Object(Map::new()))
}

pub(super) fn patch_error_status(error: patch::PatchError) -> Status {
    match error {
        patch::PatchError::Malformed(message) => Status::bad_request(message),
        patch::PatchError::Unprocessable(message) => Status::unprocessable_patch(message),
        patch::PatchError::Inapplicable { .. } => Status::unprocessable_patch(error.to_string()),
        patch::PatchError::Failed(message) => Status::from_code(500, message),
    }
}

/// 422 for a patch whose result does not decode, in upstream's words: a strategic merge patch is reported in Go's format,
/// for other patch types the patched JSON. `None` if the result decodes.
fn undecodable_result(resource: &Resource, kind: PatchType, current: &Value, patch: &Value) -> Option<Status> {
    let patched = kind.apply_patch(resource.ty, current, patch).ok()?;
    let error = decode::canonicalize(resource.ty, patched.clone()).err()?;
    let (value, message) = match kind {
        PatchType::Strategic => (json::go_value(patch), error.converter_message()),
        PatchType::Json | PatchType::Merge => (patched.to_string(), error.to_string()),
    };
    Some(Status::invalid_kind("", "", "", &[FieldError::invalid("patch", value, message)]))
}

/// 400 if name or namespace of the object differ from the path; sets them otherwise.
pub(super) fn check_identity(request: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let (name, namespace) = (meta::name(object).to_owned(), meta::namespace(object).to_owned());
    if !name.is_empty() && name != request.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name
        )));
    }
    let namespaced = request.resource.is_namespaced();
    if namespaced && !namespace.is_empty() && namespace != request.namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
            request.namespace
        )));
    }
    let metadata = meta::metadata_mut(object);
    metadata.insert("name".into(), request.name.clone().into());
    if namespaced {
        metadata.insert("namespace".into(), request.namespace.clone().into());
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Checks that UID and `resourceVersion` of the client's object, if set, are the current ones.
fn check_preconditions(
    resource: &Resource,
    name: &str,
    edited: &Value,
    current: &Value,
    revision: Revision,
) -> Result<(), Status> {
    let (given, uid) = (requested_resource_version(edited), meta::uid(edited));
    if !uid.is_empty() && uid != meta::uid(current) {
        return Err(precondition_failed(resource, current, "UID", uid, meta::uid(current)));
    }
    if given.is_empty() && resource.requires_resource_version {
        return Err(missing_resource_version(resource, name));
    }
    if !given.is_empty() && given != revision.to_string() {
        return Err(Status::object_modified(resource, name));
    }
    Ok(())
}

/// Restores fields that the request may not change, bumps the generation and calls the strategy.
fn prepare_update(request: &ResourceRequest, scope: UpdateScope, mut object: Value, current: &Value) -> Value {
    let resource = &request.resource;
    if scope == UpdateScope::Subresource {
        object = strategies::apply_subresource_update(resource, &request.subresource, object, current);
    }
    copy_fields(&mut object["metadata"], &current["metadata"], SERVER_FIELDS);
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), current["metadata"]["resourceVersion"].clone());
    let whole = matches!(scope, UpdateScope::Main | UpdateScope::Scale);
    if whole && resource.subresource("status").is_some() {
        copy_fields(&mut object, current, &["status"]);
    }
    if scope != UpdateScope::Server && resource.custom_schema.is_none() {
        drop_disabled_fields(resource.ty, &mut object, Some(current));
    }
    if whole {
        strategies::strategy_for(resource).prepare_update(&mut object, current);
    }
    let bumps = match scope {
        UpdateScope::Main | UpdateScope::Scale => strategies::strategy_for(resource).bumps_generation(&object, current),
        UpdateScope::Subresource => strategies::spec_fields(&object) != strategies::spec_fields(current),
        UpdateScope::Server => false,
    };
    if resource.tracks_generation && bumps {
        let generation = meta::integer_at(current, &["metadata", "generation"]) + 1;
        meta::metadata_mut(&mut object).insert("generation".into(), generation.into());
    }
    object
}
