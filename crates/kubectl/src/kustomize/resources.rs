//! Resources of a build: objects with the names they had.

use api::Value;

use crate::{
    errors::CommandResult,
    manifest::decode_yaml12_documents,
    object::{ObjectFields, group_version_kind, name_of, namespace_of},
};

/// An object, and what later steps need to know of it.
#[derive(Clone, Debug, Default)]
pub struct BuildResource {
    /// The object.
    pub object: Value,
    /// Kinds, names and namespaces that it had, the original first.
    pub previous: Vec<(String, String, String)>,
    /// Whether its name gets a hash of its content.
    pub needs_hash: bool,
    /// Its origin, relative to the top.
    pub origin: String,
}

impl BuildResource {
    /// A resource as it was read.
    pub fn new(object: Value) -> Self {
        let mut resource = BuildResource { object, ..Default::default() };
        resource.remember();
        resource
    }

    /// Notes kind, name and namespace before they change.
    pub fn remember(&mut self) {
        let entry = (
            self.object.text("kind").to_owned(),
            name_of(&self.object).to_owned(),
            namespace_of(&self.object).to_owned(),
        );
        if self.previous.last() != Some(&entry) {
            self.previous.push(entry);
        }
    }

    /// All kinds, names and namespaces, past and present.
    pub fn identities(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let current = (self.object.text("kind"), name_of(&self.object), namespace_of(&self.object));
        self.previous.iter().map(|(kind, name, space)| (kind.as_str(), name.as_str(), space.as_str())).chain([current])
    }

    /// Whether objects of the kind are cluster-wide, as far as is known.
    pub fn is_cluster_wide(&self) -> bool {
        let (group, version, kind) = group_version_kind(&self.object);
        let found = api::schema::schema().resource_of_kind(&group, &version, &kind);
        found.is_some_and(|resource| resource.scope == api::schema::ResourceScope::Cluster)
    }

    /// The identity in error messages: `Deployment.v1.apps/web.ns`.
    pub fn identity_text(object: &Value) -> String {
        let (group, version, kind) = group_version_kind(object);
        let part = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        format!(
            "{}.{}.{}/{}.{}",
            part(&kind, "[noKind]"),
            part(&version, "[noVer]"),
            part(&group, "[noGrp]"),
            part(name_of(object), "[noName]"),
            part(namespace_of(object), "[noNs]")
        )
    }
}

/// Why a file has no resources.
#[derive(Debug, thiserror::Error)]
pub enum ResourceFileError {
    /// It is no YAML.
    #[error("MalformedYAMLError: {0} in File: {1}")]
    Malformed(String, String),
    /// It holds no resource, or one that is there already.
    #[error("{0}")]
    Unfit(String),
}

/// Reads the objects of a YAML stream; lists become their items.
pub fn parse_resources(bytes: &[u8], path: &str) -> Result<Vec<BuildResource>, ResourceFileError> {
    let malformed = |error: &str| ResourceFileError::Malformed(error.to_owned(), path.to_owned());
    let documents = decode_yaml12_documents(bytes, path).map_err(|error| malformed(&error.to_string()))?;
    let mut resources = Vec::new();
    for document in documents {
        if !document.is_object() {
            return Err(malformed("yaml: the document is not an object"));
        }
        let objects = match document.text("kind") {
            kind if kind.ends_with("List") && document.get("items").is_some() => document.list("items").to_vec(),
            _ => vec![document],
        };
        for object in objects {
            if object.text("kind").is_empty() {
                return Err(ResourceFileError::Unfit("missing Resource metadata: kind".to_owned()));
            }
            if name_of(&object).is_empty() {
                return Err(ResourceFileError::Unfit(format!(
                    "missing metadata.name in object {}",
                    metadata_text(&object)
                )));
            }
            resources.push(BuildResource::new(object));
        }
    }
    Ok(resources)
}

/// Type and metadata of an object as Go prints the struct of them.
fn metadata_text(object: &Value) -> String {
    let map = |path: &str| api::json::go_value(object.at(path).unwrap_or(&Value::Object(api::Map::new())));
    format!(
        "{{{{{} {}}} {{{{{} {}}} {} {}}}}}",
        object.text("apiVersion"),
        object.text("kind"),
        name_of(object),
        namespace_of(object),
        map("metadata.labels"),
        map("metadata.annotations")
    )
}

/// Adds a resource unless one with its identity is there.
pub fn append_resource(all: &mut Vec<BuildResource>, resource: BuildResource) -> CommandResult {
    let same = |other: &BuildResource| {
        let (a, b) = (group_version_kind(&other.object), group_version_kind(&resource.object));
        (a.0, a.2) == (b.0, b.2)
            && name_of(&other.object) == name_of(&resource.object)
            && namespace_of(&other.object) == namespace_of(&resource.object)
    };
    if all.iter().any(same) {
        crate::bail!(
            "may not add resource with an already registered id: {}",
            BuildResource::identity_text(&resource.object)
        );
    }
    all.push(resource);
    Ok(())
}
