//! Implements [`ObjectStorage`], through which other crates of the API server use the registry.

use api::{Value, schema::Resource, status::Status};
use apiserver_core::{
    body::RequestBody,
    loopback::ObjectKey,
    request::ResourceRequest,
    storage::{CustomResources, ObjectEdit, ObjectStorage},
    webhook::WebhookClients,
};
use async_trait::async_trait;
use store::Revision;

use crate::{Registry, RequestOutcome};

#[async_trait]
impl ObjectStorage for Registry {
    async fn read_object(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(Value, Revision), Status> {
        Registry::read_object(self, resource, namespace, name).await
    }

    async fn list_objects(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status> {
        self.list_objects(resource, namespace).await
    }

    async fn write_object(&self, request: &ResourceRequest, body: &RequestBody) -> Result<Value, Status> {
        match self.handle_request(request, body).await? {
            RequestOutcome::Object { object, .. } => Ok(object),
            _ => Ok(Value::Null),
        }
    }

    async fn edit_status(&self, key: ObjectKey<'_>, edit: ObjectEdit<'_>) -> Result<Value, Status> {
        self.update_status(key, edit).await.map(|changed| changed.object)
    }

    async fn convert_to_version(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        self.crds().convert_stored_object(resource, object).await
    }

    fn custom_resources(&self) -> &dyn CustomResources {
        &**self.crds()
    }

    fn webhook_clients(&self) -> &WebhookClients {
        &self.webhook_clients
    }
}
