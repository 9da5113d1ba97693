//! DefaultBinder: binds pods through the API server's binding subresource.

use std::sync::Arc;

use client::ApiErrorExt;
use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Client;

use crate::{
    framework::{
        extension_points::{BindPlugin, Plugin},
        status::Status,
    },
    views::pod_info::PodInfo,
};

/// The plug-in.
pub struct DefaultBinder {
    client: Client,
}

impl DefaultBinder {
    /// Creates the plug-in.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn as_bind(&self) -> Option<&dyn BindPlugin> {
        Some(self)
    }
}

/// The binding of a pod to a node.
pub fn new_binding(pod: &PodInfo, node: &str) -> Binding {
    Binding {
        metadata: ObjectMeta {
            namespace: Some(pod.class.namespace.to_string()),
            name: Some(pod.name.to_string()),
            uid: Some(pod.uid.to_string()),
            ..Default::default()
        },
        target: ObjectReference { kind: Some("Node".into()), name: Some(node.into()), ..Default::default() },
    }
}

impl BindPlugin for DefaultBinder {
    fn bind<'a>(&'a self, pod: &'a Arc<PodInfo>, node: &'a Arc<str>) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(async move {
            let body = serde_json::to_vec(&new_binding(pod, node)).map_err(Status::error)?;
            let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.class.namespace, pod.name);
            let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
            let request = request.body(body).map_err(Status::error)?;
            match self.client.request_text(request).await {
                Ok(_) => Ok(true),
                Err(error) => Err(Status::error(error.server_message())),
            }
        })
    }
}
