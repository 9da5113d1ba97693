//! Create: decode, default, admit, prepare, validate, store.

use admission::AdmissionAttributes;
use api::{
    Value, apply, decode, defaults, disabled_fields::drop_disabled_fields, meta, schema::Resource, status::Status,
    validate,
};
use apiserver_core::{body::RequestBody, clock, initializers, request::ResourceRequest};
use store::Precondition;

use super::{Registry, RequestOutcome, SaveError, WriteOptions};
use crate::{
    allocate::{self, AllocationRequest, WriteOutcome},
    object_decoder::{check_api_version, decode_request_body},
    strategies,
    updated_object::UpdatedObject,
};

/// Maximum number of generated names per create request.
const MAX_NAME_ATTEMPTS: usize = 8;

impl Registry {
    pub(super) async fn create(&self, request: &ResourceRequest, body: &RequestBody) -> Result<RequestOutcome, Status> {
        let resource = &request.resource;
        let options = WriteOptions::from_request(request, body)?;
        let mut object = decode_request_body(request, resource, body, options.validation)?;
        check_api_version(request, &object)?;
        options.track_managed_fields(apply::ApplyTarget::for_resource(resource, ""), None, &mut object);
        let mut created = self.create_object(request, object, options.dry_run).await?;
        if !options.dry_run && initializers::is_pending(&created.object) {
            created.object = self.wait_for_initialization(request, created.object).await?;
            created.stored = None;
        }
        Ok(created.into_outcome(201))
    }

    /// Creates a decoded and defaulted object with managed fields. A generated name that is taken is generated again.
    pub async fn create_object(
        &self,
        request: &ResourceRequest,
        mut object: Value,
        dry_run: bool,
    ) -> Result<UpdatedObject, Status> {
        prepare_metadata(request, &mut object)?;
        let attributes = AdmissionAttributes::for_create(self, request, dry_run);
        self.admission().admit(&attributes, &mut object).await?;
        let base = meta::string_at(&object, &["metadata", "generateName"]).to_owned();
        if !meta::name(&object).is_empty() || base.is_empty() {
            return self.create_named(&attributes, object).await;
        }
        for _ in 1..MAX_NAME_ATTEMPTS {
            match self.create_named(&attributes, with_generated_name(object.clone(), &base)).await {
                Err(status) if status.is_already_exists() => {}
                outcome => return outcome,
            }
        }
        self.create_named(&attributes, with_generated_name(object, &base)).await
    }

    async fn create_named(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Value,
    ) -> Result<UpdatedObject, Status> {
        let (resource, dry_run) = (&attributes.target.resource, attributes.dry_run);
        let begin = AllocationRequest { object: &mut object, current: None, dry_run };
        let reservation = allocate::reserve(self, strategies::strategy_for(resource).allocator(), begin).await?;
        let created = self.create_allocated(attributes, object).await;
        allocate::commit_or_release(self, reservation, WriteOutcome::from_result(&created)).await;
        created
    }

    async fn create_allocated(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Value,
    ) -> Result<UpdatedObject, Status> {
        let (request, dry_run) = (attributes.target, attributes.dry_run);
        let resource = &request.resource;
        let _entered = self.crds().begin_create(resource, meta::name(&object))?;
        self.check_escalation_of_write(request, &object, None).await?;
        prepare_create(request, &mut object);
        let mut errors = validate::validate_create(resource, &object);
        strategies::strategy_for(resource).validate_object(&object, None, &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid_object(resource, meta::name(&object), &errors));
        }
        request.warnings.add_warnings(validate::collect_warnings(resource, &object, None));
        self.admission().validate(attributes, &object).await?;
        if !dry_run {
            take_resource_version(request, &mut object)?;
        }
        let name = meta::name(&object).to_owned();
        match self.save_object_with(resource, object, Precondition::Absent, dry_run, &request.raw_extensions).await {
            Ok((object, stored)) => {
                if stored.is_some() && strategies::strategy_for(resource).awaits_index() {
                    self.crds().wait_until_names_accepted(&object).await;
                }
                Ok(UpdatedObject { object, stored })
            }
            Err(SaveError::Store(store::StoreError::Conflict { .. })) => Err(Status::already_exists(resource, &name)),
            Err(unsaved) => Err(unsaved.into_status(resource, &name)),
        }
    }
}

/// Sets the namespace of the request and removes system metadata that a client may not set.
fn prepare_metadata(request: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let given = meta::namespace(object).to_owned();
    let metadata = meta::metadata_mut(object);
    if !request.resource.is_namespaced() {
        metadata.remove("namespace");
    } else if given.is_empty() || given == request.namespace {
        metadata.insert("namespace".into(), request.namespace.clone().into());
    } else {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp"] {
        metadata.remove(field);
    }
    Ok(())
}

/// Removes `resourceVersion`; 500 if a client set one, which upstream's storage layer reports this late too.
fn take_resource_version(request: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let given = meta::metadata_mut(object).remove("resourceVersion");
    let given = given.as_ref().and_then(Value::as_str).and_then(|given| given.parse::<u64>().ok());
    if request.verb != "create" || given.is_none_or(|given| given == 0) {
        return Ok(());
    }
    let message = "resourceVersion should not be set on objects to be created".to_owned();
    Err(Status::new(500, "", message))
}

fn with_generated_name(mut object: Value, base: &str) -> Value {
    meta::metadata_mut(&mut object).insert("name".into(), apiserver_core::names::generate_name(base).into());
    object
}

/// Sets system metadata, resets the status and calls the strategy.
fn prepare_create(request: &ResourceRequest, object: &mut Value) {
    let resource = &request.resource;
    let metadata = meta::metadata_mut(object);
    metadata.remove("generation");
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), clock::now_in_seconds().into());
    if resource.tracks_generation {
        metadata.insert("generation".into(), 1.into());
    }
    let strategy = strategies::strategy_for(resource);
    if resource.subresource("status").is_some() && !strategy.keeps_status_on_create() {
        reset_status(resource, object);
    }
    if resource.custom_schema.is_none() {
        drop_disabled_fields(resource.ty, object, None);
    }
    strategy.prepare_create(object, &request.user);
}

/// Replaces a client's status by the defaults.
fn reset_status(resource: &Resource, object: &mut Value) {
    meta::object_mut(object).remove("status");
    if resource.custom_schema.is_some() {
        return;
    }
    if let Ok(decoded) = decode::canonicalize(resource.ty, object.take()) {
        *object = decoded.object;
        defaults::apply_defaults(resource.ty, object);
    }
}
