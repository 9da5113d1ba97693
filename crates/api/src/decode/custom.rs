//! Objects of rows that were made at run time: metadata is read by the tables, the rest by the row's own schema.
//!
//! [`super::body`] comes here for such rows, and the server for what a patch makes.

use super::{Error, Format, Mode, canonical, unrecognized};
use crate::{
    Value, json, meta,
    schema::{Custom, Resource, schema},
    status::Status,
    yaml,
};

/// Makes the metadata of an object canonical, and gives the paths of what was dropped.
pub fn metadata(object: &mut Value) -> Result<Vec<String>, Error> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let Some(ty) = schema().type_named("meta/v1.ObjectMeta") else { return Ok(Vec::new()) };
    let decoded = canonical(ty, metadata.take())?;
    *metadata = decoded.object;
    if metadata["creationTimestamp"].is_null() {
        meta::object_mut(metadata).remove("creationTimestamp");
    }
    Ok(decoded.unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

/// Reads the body of a request to a custom resource. What it says it is may be another version: the caller refuses that.
pub(super) fn body(
    (resource, custom): (&Resource, &dyn Custom),
    format: Format,
    bytes: &[u8],
    mode: Mode,
) -> Result<(Value, Vec<String>), Status> {
    let unreadable = |why: String| unrecognized(resource.kind, bytes, why);
    let no_json = |error: json::Error| format!("couldn't get version/kind; json parse error: {error}");
    let (object, twice) = match format {
        Format::Json => {
            json::type_meta(bytes).map_err(|error| unreadable(no_json(error)))?;
            let (object, twice) = json::parse(bytes).map_err(|error| unreadable(no_json(error)))?;
            (object, twice.iter().map(|path| format!("duplicate field {path:?}")).collect())
        }
        Format::Yaml => {
            let parsed = yaml::parse(bytes).map_err(|error| unreadable(error.to_string()))?;
            let twice = parsed.violation().into_iter().collect();
            json::type_meta_of(&parsed.value).map_err(|error| unreadable(no_json(error)))?;
            (parsed.value, twice)
        }
        Format::Protobuf => {
            let types = "application/json, application/yaml";
            return Err(Status::unsupported_media_type(types));
        }
    };
    if meta::text(&object, &["kind"]).is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(unreadable(format!("Object 'Kind' is missing in '{}'", text.trim_end())));
    }
    read((resource, custom), object, twice, mode)
}

/// Makes a value that says what it is an object of a custom resource: known fields, defaults.
pub fn custom(resource: &Resource, value: Value, mode: Mode) -> Result<(Value, Vec<String>), Status> {
    match &resource.custom {
        Some(custom) => read((resource, &**custom), value, Vec::new(), mode),
        None => Err(Status::internal("a built-in resource has no schema of its own")),
    }
}

fn read(
    (resource, custom): (&Resource, &dyn Custom),
    mut object: Value,
    mut violations: Vec<String>,
    mode: Mode,
) -> Result<(Value, Vec<String>), Status> {
    let (kind, version) = (resource.kind, resource.version);
    let wrong = |why: String| {
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    };
    if !object.is_object() {
        return Err(wrong("it is not an object".to_owned()));
    }
    let given = meta::text(&object, &["apiVersion"]).to_owned();
    let mut unknown = metadata(&mut object).map_err(|error| wrong(error.to_string()))?;
    if given == resource.api_version() && meta::text(&object, &["kind"]) == kind {
        unknown.extend(custom.prune(&mut object).map_err(|fault| wrong(fault.to_string()))?);
        custom.default(&mut object);
    } else if given.split_once('/').is_some_and(|(group, _)| group == resource.group) {
        // Of a version that is not this one nothing is known.
        let others = meta::object_mut(&mut object).keys().filter(|name| !META.contains(&name.as_str()));
        unknown.extend(others.cloned());
        meta::object_mut(&mut object).retain(|name, _| META.contains(&name.as_str()));
    }
    violations.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    match mode {
        Mode::Strict if !violations.is_empty() => Err(wrong(Error::Strict(violations).to_string())),
        Mode::Warn => Ok((object, violations)),
        Mode::Strict | Mode::Ignore => Ok((object, Vec::new())),
    }
}

/// What every object has.
const META: &[&str] = &["apiVersion", "kind", "metadata"];
