//! The StorageClass of the local-path provisioner.

use client::ApiErrorExt;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::PROVISIONER;

const NAME: &str = "local-path";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Creates the class unless it exists. It is the default one unless the cluster has another.
pub async fn create_storage_class(admin: &Client) -> kube::Result<()> {
    let api: Api<StorageClass> = Api::all(admin.clone());
    let classes = api.list(&ListParams::default()).await?.items;
    if classes.iter().any(|class| class.name_any() == NAME) {
        return Ok(());
    }
    let has_default =
        classes.iter().any(|class| class.annotations().get(IS_DEFAULT).is_some_and(|text| text == "true"));
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": NAME, "annotations": { IS_DEFAULT: (!has_default).to_string() } },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = serde_json::from_value(class).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &class).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}
