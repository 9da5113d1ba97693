//! The body of a request as an object of a resource, refused in upstream's words: what it says it is, whether that is known,
//! whether it fits, and whether it is what the path takes.
//!
//! The server calls [`body`] for every object that a client sends.

use std::fmt::Display;

use super::{Mode, canonical, text};
use crate::{
    Value, json, meta,
    protobuf::{self, Unknown},
    schema::{Resource, TypeId, schema},
    status::Status,
    yaml,
};

/// How many bytes of a body that cannot be read are shown.
const SHOWN: usize = 30;

/// The formats in which a client may send an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// What a client sent, read far enough to know what it says it is.
enum Source<'a> {
    Json(&'a [u8]),
    Yaml(yaml::Parsed),
    Protobuf(Unknown<'a>),
}

/// Reads the body of a request to a resource: the canonical object, and what the client is warned of.
pub fn body(resource: &Resource, format: Format, bytes: &[u8], mode: Mode) -> Result<(Value, Vec<String>), Status> {
    if let Some(custom) = &resource.custom {
        return super::custom::body((resource, &**custom), format, bytes, mode);
    }
    let unreadable = |why: String| unrecognized(resource.kind, bytes, why);
    let (source, api_version, kind) = open(format, bytes).map_err(unreadable)?;
    let named = Named::of(resource, &api_version, &kind, format).map_err(unreadable)?;
    let ty = named.known(resource)?;
    let (mut object, violations) = source.read(ty).map_err(|why| named.refused(resource, why))?;
    named.convertible(resource, ty)?;
    if mode == Mode::Strict && !violations.is_empty() {
        return Err(named.refused(resource, super::Error::Strict(violations)));
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
    Ok((object, if mode == Mode::Warn { warnings(violations) } else { Vec::new() }))
}

/// Whether an object that says so may be one of a resource; empty names may.
pub fn check_kind(resource: &Resource, api_version: &str, kind: &str) -> Result<(), Status> {
    let named = Named::of(resource, api_version, kind, Format::Json).map_err(Status::bad_request)?;
    named.known(resource).and_then(|ty| named.convertible(resource, ty))
}

/// A body that cannot be read as anything.
pub fn unrecognized(kind: &str, bytes: &[u8], why: impl Display) -> Status {
    let shown = summary(bytes);
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
}

/// Reads what an object says it is: its source, `apiVersion` and `kind`.
fn open(format: Format, bytes: &[u8]) -> Result<(Source<'_>, String, String), String> {
    let no_meta = |error: json::Error| format!("couldn't get version/kind; json parse error: {error}");
    match format {
        Format::Json => {
            let (api_version, kind) = json::type_meta(bytes).map_err(no_meta)?;
            Ok((Source::Json(bytes), api_version, kind))
        }
        Format::Yaml => {
            let parsed = yaml::parse(bytes).map_err(|error| error.to_string())?;
            let (api_version, kind) = json::type_meta_of(&parsed.value).map_err(no_meta)?;
            Ok((Source::Yaml(parsed), api_version, kind))
        }
        Format::Protobuf => {
            let mut unknown = protobuf::open(bytes).map_err(|error| error.to_string())?;
            let names = (std::mem::take(&mut unknown.api_version), std::mem::take(&mut unknown.kind));
            Ok((Source::Protobuf(unknown), names.0, names.1))
        }
    }
}

impl Source<'_> {
    /// The object, and what strict decoding says about it.
    fn read(self, ty: TypeId) -> Result<(Value, Vec<String>), String> {
        match self {
            Source::Json(bytes) => {
                let (object, violations) = text::read(ty, bytes).map_err(|error| error.to_string())?;
                Ok((object, violations.iter().map(ToString::to_string).collect()))
            }
            Source::Yaml(parsed) => {
                let twice = parsed.violation();
                let decoded = canonical(ty, parsed.value).map_err(|error| error.to_string())?;
                let unknown = decoded.unknown.iter().map(|path| format!("unknown field {path:?}"));
                Ok((decoded.object, twice.into_iter().chain(unknown).collect()))
            }
            Source::Protobuf(unknown) => {
                let object = protobuf::decode_as(ty, unknown.raw).map_err(|error| error.to_string())?;
                Ok((object, Vec::new()))
            }
        }
    }
}

/// What an object says it is, or else what its path takes.
struct Named {
    group: String,
    version: String,
    kind: String,
}

impl Named {
    fn of(resource: &Resource, api_version: &str, kind: &str, format: Format) -> Result<Self, String> {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, rest)) if rest.contains('/') && format != Format::Protobuf => {
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

    /// The type, if upstream's scheme that has the resource has it too; the common ones are in all.
    fn ty(&self, resource: &Resource) -> Option<TypeId> {
        if !schema().has_kinds(&self.group, &self.version) {
            return None;
        }
        let found = schema().type_of_kind(&self.group, &self.version, &self.kind)?;
        let common = schema().get(found).name.starts_with("meta/");
        (common || scheme(&self.group) == scheme(resource.group)).then_some(found)
    }

    fn known(&self, resource: &Resource) -> Result<TypeId, Status> {
        self.ty(resource).ok_or_else(|| {
            let (kind, version, scheme) = (&self.kind, self.api_version(), scheme(resource.group));
            let why = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
            self.refused(resource, why)
        })
    }

    /// Whether it is of the resource's kind, in whatever version.
    fn convertible(&self, resource: &Resource, ty: TypeId) -> Result<(), Status> {
        if self.kind == resource.kind {
            return Ok(());
        }
        let (from, to) = (go_name(ty), internal_name(resource));
        Err(self.refused(resource, format!("converting ({from}) to ({to}): unknown conversion")))
    }

    fn refused(&self, resource: &Resource, why: impl Display) -> Status {
        let Self { kind, version, .. } = self;
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {why}", resource.kind))
    }
}

/// The place in upstream's code where the scheme is made that has a group.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// `v1.Pod`
fn go_name(ty: TypeId) -> &'static str {
    schema().get(ty).name.rsplit('/').next().unwrap_or_default()
}

/// `core.Pod`
fn internal_name(resource: &Resource) -> String {
    let package = schema().get(resource.ty).name.split('/').next().unwrap_or_default();
    let package = match package {
        "events" => "core",
        "internal" => "apiserverinternal",
        other => other,
    };
    format!("{package}.{}", resource.kind)
}

/// The beginning of a body, as text if it may be JSON.
fn summary(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Violations as a client is warned of them: each line of what is wrong with YAML is one.
fn warnings(violations: Vec<String>) -> Vec<String> {
    let lines = |violation: String| match violation.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![violation],
    };
    violations.into_iter().flat_map(lines).collect()
}
