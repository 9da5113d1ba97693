//! Decodes custom resources: metadata by the tables, the rest by the CRD's schema.
//!
//! [`super::decode_body`] delegates here for custom resources; the server calls it for results of patches.

use super::{BodyFormat, unrecognized_body};
use crate::{
    Value,
    decode::{DecodeError, FieldValidation, canonicalize_metadata},
    json, meta,
    schema::{CustomResourceSchema, Resource},
    status::Status,
    yaml,
};

/// Decodes the body of a request to a custom resource. The declared version may differ; the caller rejects that.
pub(super) fn decode_custom_body(
    (resource, custom): (&Resource, &dyn CustomResourceSchema),
    format: BodyFormat,
    bytes: &[u8],
    mode: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let unreadable = |why: String| unrecognized_body(resource.kind, bytes, why);
    let no_json = |error: json::JsonError| format!("couldn't get version/kind; json parse error: {error}");
    let (object, twice) = match format {
        BodyFormat::Json => {
            json::type_meta(bytes).map_err(|error| unreadable(no_json(error)))?;
            let (object, twice) = json::parse(bytes).map_err(|error| unreadable(no_json(error)))?;
            (object, twice.iter().map(|path| format!("duplicate field {path:?}")).collect())
        }
        BodyFormat::Yaml => {
            let parsed = yaml::parse(bytes).map_err(|error| unreadable(error.to_string()))?;
            let twice = parsed.duplicate_key_error().into_iter().collect();
            json::type_meta_of_value(&parsed.value).map_err(|error| unreadable(no_json(error)))?;
            (parsed.value, twice)
        }
        BodyFormat::Protobuf => {
            let types = "application/json, application/yaml";
            return Err(Status::unsupported_media_type(types));
        }
    };
    if meta::string_at(&object, &["kind"]).is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(unreadable(format!("Object 'Kind' is missing in '{}'", text.trim_end())));
    }
    decode_custom_object((resource, custom), object, twice, mode)
}

/// Prunes and defaults a value with `apiVersion` and `kind` as an object of a custom resource.
pub fn decode_custom_value(
    resource: &Resource,
    value: Value,
    mode: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    match &resource.custom_schema {
        Some(custom) => decode_custom_object((resource, &**custom), value, Vec::new(), mode),
        None => Err(Status::internal_error("a built-in resource has no schema of its own")),
    }
}

fn decode_custom_object(
    (resource, custom): (&Resource, &dyn CustomResourceSchema),
    mut object: Value,
    mut violations: Vec<String>,
    mode: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let (kind, version) = (resource.kind, resource.version);
    let wrong = |why: String| {
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    };
    if !object.is_object() {
        return Err(wrong("it is not an object".to_owned()));
    }
    let given = meta::string_at(&object, &["apiVersion"]).to_owned();
    let mut unknown = canonicalize_metadata(&mut object).map_err(|error| wrong(error.to_string()))?;
    if given == resource.api_version() && meta::string_at(&object, &["kind"]) == kind {
        unknown.extend(custom.prune_unknown_fields(&mut object).map_err(|fault| wrong(fault.to_string()))?);
        custom.default(&mut object);
    } else if given.split_once('/').is_some_and(|(group, _)| group == resource.group) {
        // The fields of another version are unknown here.
        let others = meta::object_mut(&mut object).keys().filter(|name| !COMMON_FIELDS.contains(&name.as_str()));
        unknown.extend(others.cloned());
        meta::object_mut(&mut object).retain(|name, _| COMMON_FIELDS.contains(&name.as_str()));
    }
    violations.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    match mode {
        FieldValidation::Strict if !violations.is_empty() => {
            Err(wrong(DecodeError::StrictViolations(violations).to_string()))
        }
        FieldValidation::Warn => Ok((object, violations)),
        FieldValidation::Strict | FieldValidation::Ignore => Ok((object, Vec::new())),
    }
}

/// The fields of every object.
const COMMON_FIELDS: &[&str] = &["apiVersion", "kind", "metadata"];
