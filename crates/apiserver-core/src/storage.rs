//! The traits through which stages read and write API objects without knowing the registry.

use api::{Value, schema::Resource, status::Status};
use async_trait::async_trait;
use store::Revision;

use crate::{
    body::RequestBody, object_key::ObjectKey, request::ResourceRequest, services::ServiceResolver,
    webhook::WebhookClients,
};

pub use crate::custom_resources::CustomResources;

/// Computes a changed object from the current one.
pub type ObjectEdit<'a> = &'a mut (dyn FnMut(&Value) -> Result<Value, Status> + Send);

/// Reads and writes of API objects on the server's own account. Implemented by the registry; writes go through the same
/// pipeline stages as those of clients, authorization aside.
#[async_trait]
pub trait ObjectStorage: Send + Sync {
    /// Reads an object in the version of `resource`; 404 if it does not exist.
    async fn read_object(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(Value, Revision), Status>;

    /// Lists the objects of a resource in its version; an empty namespace means all.
    async fn list_objects(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status>;

    /// Performs a write and returns the written object; null for deletions.
    async fn write_object(&self, request: &ResourceRequest, body: &RequestBody) -> Result<Value, Status>;

    /// Updates the status of an object with `edit`, which runs again after a conflict.
    async fn edit_status(&self, key: ObjectKey<'_>, edit: ObjectEdit<'_>) -> Result<Value, Status>;

    /// Converts an object to the version of `resource`; may call a conversion webhook.
    async fn convert_to_version(&self, resource: &Resource, object: Value) -> Result<Value, Status>;

    /// The served custom resources.
    fn custom_resources(&self) -> &dyn CustomResources;

    /// The connections to webhooks.
    fn webhook_clients(&self) -> &WebhookClients;

    /// Resolves Services to endpoint addresses.
    fn service_resolver(&self) -> &ServiceResolver {
        self.webhook_clients().services()
    }
}
