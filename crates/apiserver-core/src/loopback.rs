//! What the API server writes on its own account: the objects of a fresh cluster, and those that keep account of what was
//! handed out. They go through the registry like anybody's, so they have owners, defaults and identities.

use api::{
    Value,
    schema::{Resource, ResourceRef, schema},
    status::Status,
};
use bytes::Bytes;

use crate::{
    User, body::RequestBody, document::RawExtensions, query::Query, request::ResourceRequest, storage::ObjectStorage,
    warnings::Warnings,
};

/// The server's own name, as the owner of fields.
pub const NAME: &str = "kube-apiserver";
/// The server's own name, as who asks.
pub const USER: &str = "system:apiserver";

/// The row of a resource that the server itself uses.
pub fn find_resource(group: &str, version: &str, name: &str) -> Result<&'static Resource, Status> {
    let found = schema().resource(group, version, name);
    found.ok_or_else(|| Status::internal_error(format!("the schema lacks {name} in {group}/{version}")))
}

/// Which object of a resource.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKey<'a> {
    /// The row of its resource.
    pub resource: &'static Resource,
    /// Empty if it has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// The server as a client of its own registry.
#[derive(Clone, Copy)]
pub struct LoopbackClient<'a> {
    storage: &'a dyn ObjectStorage,
    name: &'static str,
}

impl<'a> LoopbackClient<'a> {
    /// Under the server's own name.
    pub fn new(storage: &'a dyn ObjectStorage) -> Self {
        Self { storage, name: NAME }
    }

    /// Under the name of one of its parts.
    pub fn named(storage: &'a dyn ObjectStorage, name: &'static str) -> Self {
        Self { storage, name }
    }

    /// The object, or `None` if it does not exist.
    pub async fn read(&self, place: ObjectKey<'_>) -> Result<Option<Value>, Status> {
        match self.storage.read_object(place.resource, place.namespace, place.name).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Creates an object.
    pub async fn create(&self, place: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        let place = ObjectKey { name: "", ..place };
        self.perform(target("create", place, ""), object).await
    }

    /// Writes a changed object.
    pub async fn update(&self, place: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        self.perform(target("update", place, ""), object).await
    }

    /// Applies a status, by force.
    pub async fn apply_status(&self, place: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        let mut target = target("patch", place, "status");
        target.query = Query::parse(&format!("fieldManager={}&force=true", self.name));
        self.perform(target, object).await
    }

    /// Writes the status of an object.
    pub async fn update_status(&self, place: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        self.perform(target("update", place, "status"), object).await
    }

    /// Deletes an object; whether it was there.
    pub async fn delete(&self, place: ObjectKey<'_>) -> Result<bool, Status> {
        match self.perform(target("delete", place, ""), &Value::Null).await {
            Ok(_) => Ok(true),
            Err(status) if status.code == 404 => Ok(false),
            Err(status) => Err(status),
        }
    }

    async fn perform(&self, target: ResourceRequest, object: &Value) -> Result<Value, Status> {
        let content_type = if target.verb == "patch" { "application/apply-patch+yaml" } else { "application/json" };
        let body = if object.is_null() { Bytes::new() } else { object.to_string().into() };
        let input = RequestBody { content_type: content_type.into(), user_agent: self.name.into(), body };
        self.storage.write_object(&target, &input).await
    }
}

/// A request of the server's own.
pub fn target(verb: &'static str, place: ObjectKey<'_>, subresource: &str) -> ResourceRequest {
    ResourceRequest {
        resource: place.resource.into(),
        verb,
        namespace: place.namespace.to_owned(),
        name: place.name.to_owned(),
        subresource: subresource.to_owned(),
        query: Query::default(),
        user: identity(),
        notes: Warnings::default(),
        words: RawExtensions::default(),
    }
}

/// A request of the server's own about all objects of a row.
pub fn target_of(resource: ResourceRef) -> ResourceRequest {
    ResourceRequest {
        resource,
        verb: "list",
        namespace: String::new(),
        name: String::new(),
        subresource: String::new(),
        query: Query::default(),
        user: identity(),
        notes: Warnings::default(),
        words: RawExtensions::default(),
    }
}

/// Who the server is to its own parts.
fn identity() -> User {
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    User { name: USER.to_owned(), groups, ..User::default() }
}
