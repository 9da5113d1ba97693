//! Decodes request bodies as objects of a resource, with upstream's error messages: `apiVersion` and `kind` are read
//! first, then the object, then the kind is compared with the resource.
//!
//! The server calls [`decode_body`] for every object that a client sends.

mod custom_resource;

use std::fmt::Display;

pub use custom_resource::decode_custom_value;

use crate::{
    Value,
    decode::{DecodeError, FieldValidation, canonicalize, json_text},
    json, meta,
    protobuf::{self, UnknownObject},
    schema::{Resource, TypeId, schema},
    status::Status,
    yaml,
};

/// The number of bytes of an unreadable body that an error quotes.
const SUMMARY_LENGTH: usize = 30;

/// The encodings of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// A body of which `apiVersion` and `kind` have been read.
enum BodySource<'a> {
    Json(&'a [u8]),
    Yaml(yaml::YamlDocument),
    Protobuf(UnknownObject<'a>),
}

/// Decodes the body of a request to a resource; returns the canonical object and the warnings for the client.
pub fn decode_body(
    resource: &Resource,
    format: BodyFormat,
    bytes: &[u8],
    mode: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    if let Some(custom) = &resource.custom_schema {
        return custom_resource::decode_custom_body((resource, &**custom), format, bytes, mode);
    }
    let unreadable = |why: String| unrecognized_body(resource.kind, bytes, why);
    let (source, api_version, kind) = read_type_meta(format, bytes).map_err(unreadable)?;
    let named = DeclaredKind::resolve(resource, &api_version, &kind, format).map_err(unreadable)?;
    let ty = named.require_registered(resource)?;
    let (mut object, violations) = source.decode_object(ty).map_err(|why| named.decode_failure(resource, why))?;
    named.require_convertible(resource, ty)?;
    if mode == FieldValidation::Strict && !violations.is_empty() {
        return Err(named.decode_failure(resource, DecodeError::StrictViolations(violations)));
    }
    let (given, wanted) = (named.api_version(), resource.api_version());
    if given != wanted {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({wanted})"
        )));
    }
    let fields = meta::object_mut(&mut object);
    fields.insert("apiVersion".to_owned(), wanted.into());
    fields.insert("kind".to_owned(), resource.kind.into());
    Ok((object, if mode == FieldValidation::Warn { split_warnings(violations) } else { Vec::new() }))
}

/// Checks that an `apiVersion` and `kind` may be used with a resource; empty names may.
pub fn check_kind(resource: &Resource, api_version: &str, kind: &str) -> Result<(), Status> {
    let named = DeclaredKind::resolve(resource, api_version, kind, BodyFormat::Json).map_err(Status::bad_request)?;
    named.require_registered(resource).and_then(|ty| named.require_convertible(resource, ty))
}

/// 400: the body cannot be decoded at all.
pub fn unrecognized_body(kind: &str, bytes: &[u8], why: impl Display) -> Status {
    let shown = summarize_body(bytes);
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
}

/// Reads `apiVersion` and `kind` of a body.
fn read_type_meta(format: BodyFormat, bytes: &[u8]) -> Result<(BodySource<'_>, String, String), String> {
    let no_meta = |error: json::JsonError| format!("couldn't get version/kind; json parse error: {error}");
    match format {
        BodyFormat::Json => {
            let (api_version, kind) = json::type_meta(bytes).map_err(no_meta)?;
            Ok((BodySource::Json(bytes), api_version, kind))
        }
        BodyFormat::Yaml => {
            let parsed = yaml::parse(bytes).map_err(|error| error.to_string())?;
            let (api_version, kind) = json::type_meta_of_value(&parsed.value).map_err(no_meta)?;
            Ok((BodySource::Yaml(parsed), api_version, kind))
        }
        BodyFormat::Protobuf => {
            let mut unknown = protobuf::open_object(bytes).map_err(|error| error.to_string())?;
            let names = (std::mem::take(&mut unknown.api_version), std::mem::take(&mut unknown.kind));
            Ok((BodySource::Protobuf(unknown), names.0, names.1))
        }
    }
}

impl BodySource<'_> {
    /// Decodes the object and lists strict decoding violations.
    fn decode_object(self, ty: TypeId) -> Result<(Value, Vec<String>), String> {
        match self {
            BodySource::Json(bytes) => {
                let (object, violations) = json_text::decode_text(ty, bytes).map_err(|error| error.to_string())?;
                Ok((object, violations.iter().map(ToString::to_string).collect()))
            }
            BodySource::Yaml(parsed) => {
                let twice = parsed.duplicate_key_error();
                let decoded = canonicalize(ty, parsed.value).map_err(|error| error.to_string())?;
                let unknown = decoded.unknown.iter().map(|path| format!("unknown field {path:?}"));
                Ok((decoded.object, twice.into_iter().chain(unknown).collect()))
            }
            BodySource::Protobuf(unknown) => {
                let object = protobuf::decode_as(ty, unknown.raw).map_err(|error| error.to_string())?;
                Ok((object, Vec::new()))
            }
        }
    }
}

/// The group, version and kind that an object declares, or those of the resource.
struct DeclaredKind {
    group: String,
    version: String,
    kind: String,
}

impl DeclaredKind {
    fn resolve(resource: &Resource, api_version: &str, kind: &str, format: BodyFormat) -> Result<Self, String> {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, rest)) if rest.contains('/') && format != BodyFormat::Protobuf => {
                return Err(format!("unexpected GroupVersion string: {api_version}"));
            }
            Some((_, rest)) if rest.contains('/') => ("", ""),
            Some(parts) => parts,
        };
        let unnamed = version.is_empty() && (group.is_empty() || group == resource.group);
        let (group, version) = if unnamed { (resource.group, resource.version) } else { (group, version) };
        let kind = if kind.is_empty() { resource.kind } else { kind };
        Ok(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the type if it is registered in the upstream scheme of the resource; common types are in all.
    fn find_type(&self, resource: &Resource) -> Option<TypeId> {
        if !schema().has_kinds(&self.group, &self.version) {
            return None;
        }
        let found = schema().type_of_kind(&self.group, &self.version, &self.kind)?;
        let common = schema().get(found).name.starts_with("meta/");
        (common || scheme_location(&self.group) == scheme_location(resource.group)).then_some(found)
    }

    fn require_registered(&self, resource: &Resource) -> Result<TypeId, Status> {
        self.find_type(resource).ok_or_else(|| {
            let (kind, version, scheme) = (&self.kind, self.api_version(), scheme_location(resource.group));
            let why = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
            self.decode_failure(resource, why)
        })
    }

    /// Whether it is the resource's kind, in any version.
    fn require_convertible(&self, resource: &Resource, ty: TypeId) -> Result<(), Status> {
        if self.kind == resource.kind {
            return Ok(());
        }
        let (from, to) = (go_type_name(ty), internal_type_name(resource));
        Err(self.decode_failure(resource, format!("converting ({from}) to ({to}): unknown conversion")))
    }

    fn decode_failure(&self, resource: &Resource, why: impl Display) -> Status {
        let Self { kind, version, .. } = self;
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {why}", resource.kind))
    }
}

/// The position in upstream's code that names the scheme of a group.
fn scheme_location(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Formats `v1.Pod`.
fn go_type_name(ty: TypeId) -> &'static str {
    schema().get(ty).name.rsplit('/').next().unwrap_or_default()
}

/// Formats `core.Pod`.
fn internal_type_name(resource: &Resource) -> String {
    let package = schema().get(resource.ty).name.split('/').next().unwrap_or_default();
    let package = match package {
        "events" => "core",
        "internal" => "apiserverinternal",
        other => other,
    };
    format!("{package}.{}", resource.kind)
}

/// Returns the beginning of a body, as text if it may be JSON, otherwise in hexadecimal.
fn summarize_body(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SUMMARY_LENGTH)];
    let more = if bytes.len() > SUMMARY_LENGTH { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Splits violations into warnings: each line of YAML errors is one.
fn split_warnings(violations: Vec<String>) -> Vec<String> {
    let lines = |violation: String| match violation.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![violation],
    };
    violations.into_iter().flat_map(lines).collect()
}
