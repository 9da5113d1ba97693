//! Decodes request bodies and patched values as objects of a resource.

use api::{Value, convert, decode, defaults, meta, request_body, schema::Resource, status::Status};
use apiserver_core::{body::RequestBody, request::ResourceRequest};

use crate::FieldValidation;

/// Decodes the request body as an object of `resource` and applies defaults. Decoding warnings are added to the
/// request, so that they also accompany later errors.
pub fn decode_request_body(
    request: &ResourceRequest,
    resource: &Resource,
    body: &RequestBody,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let (mut object, warnings) =
        request_body::decode_body(resource, body.detect_format()?, &body.body, decode_mode(validation))?;
    if resource.custom_schema.is_none() {
        defaults::apply_defaults(resource.ty, &mut object);
    }
    request.warnings.add_warnings(warnings);
    Ok(object)
}

/// 400 if the object's `apiVersion` is not that of the request.
pub(super) fn check_api_version(request: &ResourceRequest, object: &Value) -> Result<(), Status> {
    let (given, wanted) = (meta::string_at(object, &["apiVersion"]), request.resource.api_version());
    if given == wanted { Ok(()) } else { Err(api_version_mismatch(given, &wanted)) }
}

fn api_version_mismatch(given: &str, wanted: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({wanted})"
    ))
}

/// Decodes a value as an object of `resource`: checks its kind, handles unknown fields, canonicalizes it and applies
/// defaults. Returns the object and warnings.
pub fn decode_value(
    resource: &Resource,
    value: Value,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    if resource.custom_schema.is_some() {
        let (given, wanted) = (meta::string_at(&value, &["apiVersion"]), resource.api_version());
        if given != wanted {
            return Err(api_version_mismatch(given, &wanted));
        }
        return request_body::decode_custom_value(resource, value, decode_mode(validation));
    }
    let value = convert_kind(resource, value)?;
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

/// Checks `kind` and `apiVersion`, both optional, and converts from other versions of the resource.
fn convert_kind(resource: &Resource, mut value: Value) -> Result<Value, Status> {
    let Some(map) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; it is not an object",
            resource.kind
        )));
    };
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let wanted = resource.api_version();
    request_body::check_kind(resource, &version, &kind)?;
    if !version.is_empty() && version != wanted && convert::resource_written_through(resource, &value).is_none() {
        return Err(api_version_mismatch(&version, &wanted));
    }
    let mut value = if version.is_empty() { value } else { convert::convert_to(resource, value) };
    meta::object_mut(&mut value).insert("kind".into(), resource.kind.into());
    meta::object_mut(&mut value).insert("apiVersion".into(), wanted.into());
    Ok(value)
}

fn decode_mode(validation: FieldValidation) -> decode::FieldValidation {
    match validation {
        FieldValidation::Ignore => decode::FieldValidation::Ignore,
        FieldValidation::Warn => decode::FieldValidation::Warn,
        FieldValidation::Strict => decode::FieldValidation::Strict,
    }
}
