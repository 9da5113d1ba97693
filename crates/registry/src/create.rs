//! Create: decode, default, admit, prepare, validate, store.

use admission::AdmissionAttributes;
use api::{Value, apply, convert, decode, defaults, meta, schema::Resource, status::Status, validate};
use apiserver_core::{body::RequestBody, clock, initializers, request::ResourceRequest};
use store::Precondition;

use super::{FieldValidation, Outcome, Registry, SaveError, WriteOptions, update::Changed};
use crate::{
    allocate,
    allocate::{AllocationRequest, WriteOutcome},
    strategies,
};

/// How many generated names are tried until one is not taken.
const DRAWS: usize = 8;

impl Registry {
    pub(super) async fn create(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        let resource = &target.resource;
        let options = WriteOptions::of(target, input)?;
        let mut object = body(target, resource, input, options.validation)?;
        same_version(target, &object)?;
        options.note(apply::ApplyTarget::for_resource(resource, ""), None, &mut object);
        let mut created = self.create_object(target, object, options.dry_run).await?;
        if !options.dry_run && initializers::is_pending(&created.object) {
            created.object = self.initialized(target, created.object).await?;
            created.stored = None;
        }
        Ok(created.outcome(201))
    }

    /// Creates an object that is decoded and has its defaults and owners. Where the name is generated and taken, another
    /// is drawn.
    pub async fn create_object(
        &self,
        target: &ResourceRequest,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Changed, Status> {
        place(target, &mut object)?;
        let attributes = AdmissionAttributes::create(self, target, dry_run);
        self.admission().admit(&attributes, &mut object).await?;
        let base = meta::string_at(&object, &["metadata", "generateName"]).to_owned();
        if !meta::name(&object).is_empty() || base.is_empty() {
            return self.create_named(&attributes, object).await;
        }
        for _ in 1..DRAWS {
            match self.create_named(&attributes, named(object.clone(), &base)).await {
                Err(status) if status.reason == "AlreadyExists" => {}
                outcome => return outcome,
            }
        }
        self.create_named(&attributes, named(object, &base)).await
    }

    async fn create_named(&self, attributes: &AdmissionAttributes<'_>, mut object: Value) -> Result<Changed, Status> {
        let (resource, dry_run) = (&attributes.target.resource, attributes.dry_run);
        let begin = AllocationRequest { object: &mut object, current: None, dry_run };
        let reservation = allocate::reserve(self, resource, begin).await?;
        let created = self.create_placed(attributes, object).await;
        allocate::commit_or_release(self, reservation, WriteOutcome::of(&created)).await;
        created
    }

    async fn create_placed(&self, attributes: &AdmissionAttributes<'_>, mut object: Value) -> Result<Changed, Status> {
        let (target, dry_run) = (attributes.target, attributes.dry_run);
        let resource = &target.resource;
        let _entered = self.custom().enter(resource, meta::name(&object))?;
        self.check_escalation(target, &object, None).await?;
        prepare(target, &mut object);
        let mut errors = validate::validate_create(resource, &object);
        strategies::of(resource).check(&object, None, &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid_object(resource, meta::name(&object), &errors));
        }
        target.notes.warn_all(validate::collect_warnings(resource, &object, None));
        self.admission().validate(attributes, &object).await?;
        if !dry_run {
            unversioned(target, &mut object)?;
        }
        let name = meta::name(&object).to_owned();
        match self.save_with(resource, object, Precondition::Absent, dry_run, &target.words).await {
            Ok((object, stored)) => {
                if stored.is_some() && strategies::of(resource).is_awaited() {
                    self.custom().settled(&object).await;
                }
                Ok(Changed { object, stored })
            }
            Err(SaveError::Store(store::StoreError::Conflict { .. })) => Err(Status::already_exists(resource, &name)),
            Err(unsaved) => Err(unsaved.status(resource, &name)),
        }
    }
}

fn mode(validation: FieldValidation) -> decode::FieldValidation {
    match validation {
        FieldValidation::Ignore => decode::FieldValidation::Ignore,
        FieldValidation::Warn => decode::FieldValidation::Warn,
        FieldValidation::Strict => decode::FieldValidation::Strict,
    }
}

/// Reads the body of a request as an object of a resource, with defaults. What is odd about it is noted, so that who is
/// refused later is warned too.
pub fn body(
    target: &ResourceRequest,
    resource: &Resource,
    input: &RequestBody,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let (mut object, warnings) = decode::decode_body(resource, input.body_format()?, &input.body, mode(validation))?;
    if resource.custom_schema.is_none() {
        defaults::apply_defaults(resource.ty, &mut object);
    }
    target.notes.warn_all(warnings);
    Ok(object)
}

/// What is sent to a custom resource must be of its version.
pub(super) fn same_version(target: &ResourceRequest, object: &Value) -> Result<(), Status> {
    let (given, wanted) = (meta::string_at(object, &["apiVersion"]), target.resource.api_version());
    if given == wanted { Ok(()) } else { Err(other_version(given, &wanted)) }
}

fn other_version(given: &str, wanted: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({wanted})"
    ))
}

/// Makes a value an object of a resource: right kind, known fields, canonical form, defaults.
pub fn decoded(resource: &Resource, value: Value, validation: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    if resource.custom_schema.is_some() {
        let (given, wanted) = (meta::string_at(&value, &["apiVersion"]), resource.api_version());
        if given != wanted {
            return Err(other_version(given, &wanted));
        }
        return decode::decode_custom_value(resource, value, mode(validation));
    }
    let value = of_kind(resource, value)?;
    let wrong = |message: String| {
        let (kind, version) = (resource.kind, resource.version);
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {message}"))
    };
    let decoded = decode::canonicalize(resource.ty, value).map_err(|error| wrong(error.to_string()))?;
    let faults: Vec<String> = decoded.unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    if validation == FieldValidation::Strict && !faults.is_empty() {
        return Err(wrong(format!("strict decoding error: {}", faults.join(", "))));
    }
    let mut object = decoded.object;
    defaults::apply_defaults(resource.ty, &mut object);
    let warnings = if validation == FieldValidation::Warn { faults } else { Vec::new() };
    Ok((object, warnings))
}

/// Checks `kind` and `apiVersion`, which a client may leave out, and converts between versions of one resource.
fn of_kind(resource: &Resource, mut value: Value) -> Result<Value, Status> {
    let Some(map) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; it is not an object",
            resource.kind
        )));
    };
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let wanted = resource.api_version();
    decode::check_kind(resource, &version, &kind)?;
    if !version.is_empty() && version != wanted && convert::resource_written_through(resource, &value).is_none() {
        return Err(other_version(&version, &wanted));
    }
    let mut value = if version.is_empty() { value } else { convert::convert_to(resource, value) };
    meta::object_mut(&mut value).insert("kind".into(), resource.kind.into());
    meta::object_mut(&mut value).insert("apiVersion".into(), wanted.into());
    Ok(value)
}

/// Gives the object the namespace of the request, and takes from it what only the server says.
fn place(target: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let given = meta::namespace(object).to_owned();
    let metadata = meta::metadata_mut(object);
    if !target.resource.is_namespaced() {
        metadata.remove("namespace");
    } else if given.is_empty() || given == target.namespace {
        metadata.insert("namespace".into(), target.namespace.clone().into());
    } else {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp"] {
        metadata.remove(field);
    }
    Ok(())
}

/// What is stored gets its version from the store. Who posts one is told so only now, as a failure of the store.
fn unversioned(target: &ResourceRequest, object: &mut Value) -> Result<(), Status> {
    let given = meta::metadata_mut(object).remove("resourceVersion");
    let given = given.as_ref().and_then(Value::as_str).and_then(|given| given.parse::<u64>().ok());
    if target.verb != "create" || given.is_none_or(|given| given == 0) {
        return Ok(());
    }
    let message = "resourceVersion should not be set on objects to be created".to_owned();
    Err(Status { code: 500, reason: "", message, details: None, continue_token: None })
}

fn named(mut object: Value, base: &str) -> Value {
    meta::metadata_mut(&mut object).insert("name".into(), apiserver_core::names::generated(base).into());
    object
}

/// What the server sets, not the client.
fn prepare(target: &ResourceRequest, object: &mut Value) {
    let resource = &target.resource;
    let metadata = meta::metadata_mut(object);
    metadata.remove("generation");
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), clock::seconds().into());
    if resource.tracks_generation {
        metadata.insert("generation".into(), 1.into());
    }
    let strategy = strategies::of(resource);
    if resource.subresource("status").is_some() && !strategy.keeps_status_on_create() {
        reset_status(resource, object);
    }
    strategy.prepare_create(object, &target.user);
}

/// Status belongs to whoever runs the object: a client's is dropped, and what the defaults say is put there.
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
