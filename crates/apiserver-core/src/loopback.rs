//! Reads and writes of the API server itself: the objects of a new cluster, and those that record allocations. They go
//! through the registry like those of clients, with managed fields, defaults and UIDs.

use api::{Value, schema::ResourceRef, status::Status};
use bytes::Bytes;

use crate::{
    User, body::RequestBody, document::RawExtensions, query::Query, request::ResourceRequest, storage::ObjectStorage,
    warnings::Warnings,
};

pub use crate::object_key::{ObjectKey, find_resource};

/// The server's field manager name.
pub const FIELD_MANAGER: &str = "kube-apiserver";
/// The server's user name.
pub const USER_NAME: &str = "system:apiserver";

/// The server as a client of its own registry.
#[derive(Clone, Copy)]
pub struct LoopbackClient<'a> {
    storage: &'a dyn ObjectStorage,
    field_manager: &'static str,
}

impl<'a> LoopbackClient<'a> {
    /// A client with the server's own field manager.
    pub fn new(storage: &'a dyn ObjectStorage) -> Self {
        Self { storage, field_manager: FIELD_MANAGER }
    }

    /// A client with the field manager of a component.
    pub fn with_field_manager(storage: &'a dyn ObjectStorage, field_manager: &'static str) -> Self {
        Self { storage, field_manager }
    }

    /// Reads an object; `None` if it does not exist.
    pub async fn read_object(&self, key: ObjectKey<'_>) -> Result<Option<Value>, Status> {
        match self.storage.read_object(key.resource, key.namespace, key.name).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(status) if status.is_not_found() => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Creates an object.
    pub async fn create_object(&self, key: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        let key = ObjectKey { name: "", ..key };
        self.perform(loopback_request("create", key, ""), object).await
    }

    /// Updates an object.
    pub async fn update_object(&self, key: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        self.perform(loopback_request("update", key, ""), object).await
    }

    /// Applies a status with force.
    pub async fn apply_status(&self, key: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        let mut request = loopback_request("patch", key, "status");
        request.query = Query::parse(&format!("fieldManager={}&force=true", self.field_manager));
        self.perform(request, object).await
    }

    /// Writes the status of an object.
    pub async fn update_status(&self, key: ObjectKey<'_>, object: &Value) -> Result<Value, Status> {
        self.perform(loopback_request("update", key, "status"), object).await
    }

    /// Deletes an object and returns whether it existed.
    pub async fn delete_object(&self, key: ObjectKey<'_>) -> Result<bool, Status> {
        match self.perform(loopback_request("delete", key, ""), &Value::Null).await {
            Ok(_) => Ok(true),
            Err(status) if status.is_not_found() => Ok(false),
            Err(status) => Err(status),
        }
    }

    async fn perform(&self, request: ResourceRequest, object: &Value) -> Result<Value, Status> {
        let content_type = if request.verb == "patch" { "application/apply-patch+yaml" } else { "application/json" };
        let body = if object.is_null() { Bytes::new() } else { object.to_string().into() };
        let input = RequestBody { content_type: content_type.into(), user_agent: self.field_manager.into(), body };
        self.storage.write_object(&request, &input).await
    }
}

/// Builds a request of the server itself.
pub fn loopback_request(verb: &'static str, key: ObjectKey<'_>, subresource: &str) -> ResourceRequest {
    ResourceRequest {
        resource: key.resource.into(),
        verb,
        namespace: key.namespace.to_owned(),
        name: key.name.to_owned(),
        subresource: subresource.to_owned(),
        query: Query::default(),
        user: loopback_user(),
        warnings: Warnings::default(),
        raw_extensions: RawExtensions::default(),
    }
}

/// Builds a list request of the server itself for a resource.
pub fn loopback_list_request(resource: ResourceRef) -> ResourceRequest {
    ResourceRequest {
        resource,
        verb: "list",
        namespace: String::new(),
        name: String::new(),
        subresource: String::new(),
        query: Query::default(),
        user: loopback_user(),
        warnings: Warnings::default(),
        raw_extensions: RawExtensions::default(),
    }
}

/// The server's user info.
fn loopback_user() -> User {
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    User { name: USER_NAME.to_owned(), groups, ..User::default() }
}
