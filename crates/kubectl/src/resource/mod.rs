//! Resources named on the command line or in files, and the requests that read and change them.

mod builder;
mod builder_parts;
mod file_arguments;
mod request_options;

use api::Value;

pub use builder::ResourceBuilder;
pub use builder_parts::{BuildResult, set_type_meta};
pub use file_arguments::{match_pattern, matches_name};
pub use request_options::{DryRun, PatchKind, RequestOptions};

pub use crate::manifest::{Validation, check_object_kind, decode_documents};
use crate::{
    discovery::RestMapping,
    errors::CommandResult,
    object::{self, ObjectFields},
    rest::{RestClient, RestRequest},
};

/// An object with the place it came from and the resource it belongs to.
#[derive(Clone, Debug, Default)]
pub struct ResourceInfo {
    /// The resource; empty for local objects.
    pub mapping: RestMapping,
    /// The namespace; empty for cluster-wide objects.
    pub namespace: String,
    /// The name; empty for lists and generated names.
    pub name: String,
    /// The file or URL.
    pub source: String,
    /// The object; null until it is read.
    pub object: Value,
    /// The subresource that is read.
    pub subresource: String,
}

impl ResourceInfo {
    /// The info of an object with a known mapping.
    pub fn from_object(mapping: RestMapping, object: Value) -> Self {
        let (namespace, name) = (object::namespace_of(&object).to_owned(), object::name_of(&object).to_owned());
        ResourceInfo { mapping, namespace, name, object, ..Default::default() }
    }

    /// `kind.group/name`, as messages name the object.
    pub fn object_name(&self) -> String {
        format!("{}/{}", self.mapping.qualified_kind(), self.name)
    }

    /// The path of the object, with the subresource if any.
    pub fn path(&self) -> String {
        let path = self.mapping.path(&self.namespace, &self.name);
        if self.subresource.is_empty() { path } else { format!("{path}/{}", self.subresource) }
    }

    /// Replaces the object by an answer of the server.
    pub fn refresh(&mut self, object: Value) {
        let name = object::name_of(&object);
        if !name.is_empty() {
            self.name = name.to_owned();
        }
        let namespace = object::namespace_of(&object);
        if !namespace.is_empty() {
            self.namespace = namespace.to_owned();
        }
        self.object = object;
    }

    /// Reads the object.
    pub fn fetch(&self, client: &RestClient) -> CommandResult<Value> {
        client.send_json(RestRequest::get(self.path()))
    }

    /// Reads the object into place.
    pub fn load(&mut self, client: &RestClient) -> CommandResult {
        let object = self.fetch(client)?;
        self.refresh(object);
        Ok(())
    }

    /// Creates an object of a manifest, without the version that it had where it was read.
    pub fn create_from_manifest(
        &self,
        client: &RestClient,
        object: &Value,
        options: &RequestOptions,
    ) -> CommandResult<Value> {
        let mut object = object.clone();
        if !object.text("metadata.resourceVersion").is_empty() {
            object::remove_path(&mut object, "metadata.resourceVersion");
        }
        self.create(client, &object, options)
    }

    /// Creates the object.
    pub fn create(&self, client: &RestClient, object: &Value, options: &RequestOptions) -> CommandResult<Value> {
        let path = self.mapping.path(&self.namespace, "");
        let request = options.apply_to(RestRequest::new(http::Method::POST, path)).with_json(object);
        client.send_json(request)
    }

    /// Replaces the object.
    pub fn replace(&self, client: &RestClient, object: &Value, options: &RequestOptions) -> CommandResult<Value> {
        let request = options.apply_to(RestRequest::new(http::Method::PUT, self.path())).with_json(object);
        client.send_json(request)
    }

    /// Patches the object.
    pub fn patch(
        &self,
        client: &RestClient,
        kind: PatchKind,
        patch: impl Into<bytes::Bytes>,
        options: &RequestOptions,
    ) -> CommandResult<Value> {
        let request = RestRequest::new(http::Method::PATCH, self.path());
        client.send_json(options.apply_to(request).with_body(kind.content_type(), patch))
    }

    /// Deletes the object.
    pub fn delete(&self, client: &RestClient, options: &Value) -> CommandResult<Value> {
        let request = RestRequest::new(http::Method::DELETE, self.mapping.path(&self.namespace, &self.name));
        client.send_json(request.with_json(options))
    }
}
