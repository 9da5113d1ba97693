//! The registry as other stages of the API server see it.

use api::{Value, schema::Resource, status::Status};
use apiserver_core::{
    body::RequestBody,
    loopback::ObjectKey,
    request::ResourceRequest,
    services::Services,
    storage::{CustomResources, Edit, ObjectStorage},
};
use async_trait::async_trait;
use store::Revision;

use crate::{Outcome, Registry};

#[async_trait]
impl ObjectStorage for Registry {
    async fn read_object(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(Value, Revision), Status> {
        Registry::read_object(self, resource, namespace, name).await
    }

    async fn list_objects(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status> {
        self.objects(resource, namespace).await
    }

    async fn write_object(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Value, Status> {
        match self.perform(target, input).await? {
            Outcome::Object { object, .. } => Ok(object),
            _ => Ok(Value::Null),
        }
    }

    async fn edit_status(&self, place: ObjectKey<'_>, edit: Edit<'_>) -> Result<Value, Status> {
        self.change_status(place, edit).await.map(|changed| changed.object)
    }

    async fn convert_to_version(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        self.custom().one_in_version(resource, object).await
    }

    fn custom_resources(&self) -> &dyn CustomResources {
        &**self.custom()
    }

    fn services(&self) -> &Services {
        Registry::services(self)
    }
}
