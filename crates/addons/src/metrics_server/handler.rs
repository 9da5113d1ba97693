//! Requests to the metrics API.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use component_server::{HttpsHandler, ResponseBody, UserInfo, body_of};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, api::ListParams};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use transport::query::Query;

use super::{
    MetricsServer,
    documents::{
        self, GROUP, MetricsResource, ObjectMetrics, list_document, single_document, status_document, table_document,
    },
};

type Reply = (StatusCode, Value);

/// A request by its path.
#[derive(Debug, PartialEq, Eq)]
enum MetricsRequest<'a> {
    Groups,
    Group,
    Resources,
    Objects { resource: MetricsResource, namespace: Option<&'a str>, name: Option<&'a str> },
    Health,
    Unknown,
}

impl<'a> MetricsRequest<'a> {
    fn parse(path: &'a str) -> Self {
        let objects = |resource, namespace, name| Self::Objects { resource, namespace, name };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts[..] {
            ["apis"] => Self::Groups,
            ["apis", GROUP] => Self::Group,
            ["apis", GROUP, "v1beta1"] => Self::Resources,
            ["apis", GROUP, "v1beta1", "nodes"] => objects(MetricsResource::Nodes, None, None),
            ["apis", GROUP, "v1beta1", "nodes", name] => objects(MetricsResource::Nodes, None, Some(name)),
            ["apis", GROUP, "v1beta1", "pods"] => objects(MetricsResource::Pods, None, None),
            ["apis", GROUP, "v1beta1", "namespaces", namespace, "pods"] => {
                objects(MetricsResource::Pods, Some(namespace), None)
            }
            ["apis", GROUP, "v1beta1", "namespaces", namespace, "pods", name] => {
                objects(MetricsResource::Pods, Some(namespace), Some(name))
            }
            ["healthz" | "livez" | "readyz"] => Self::Health,
            _ => Self::Unknown,
        }
    }
}

impl HttpsHandler for MetricsServer {
    /// TLS has verified the chain.
    fn user_of_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<UserInfo> {
        UserInfo::from_certificate(chain.first()?)
    }

    async fn handle(
        self: Arc<Self>,
        certificate_user: Arc<Option<UserInfo>>,
        request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        // The API server has authenticated and authorized the user.
        let trusted = (*certificate_user).as_ref().is_some_and(|user| user.name == self.request_user);
        let (code, document) = match (trusted, request.method()) {
            (false, _) => failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            (true, &Method::GET) => self.respond(&request).await,
            (true, _) => failure(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
        };
        let mut response = Response::new(body_of(format!("{document}\n")));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        response
    }
}

impl MetricsServer {
    async fn respond(&self, request: &Request<Incoming>) -> Reply {
        match MetricsRequest::parse(request.uri().path()) {
            MetricsRequest::Groups => {
                let groups = [documents::api_group()];
                (StatusCode::OK, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
            }
            MetricsRequest::Group => (StatusCode::OK, documents::api_group()),
            MetricsRequest::Resources => (StatusCode::OK, documents::resource_list()),
            MetricsRequest::Health => (StatusCode::OK, json!("ok")),
            MetricsRequest::Unknown => {
                failure(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            }
            MetricsRequest::Objects { resource, namespace, name } => {
                self.requested.store(Timestamp::now().as_second(), Ordering::Relaxed);
                let query = request.uri().query().unwrap_or_default();
                let objects = self.objects(resource, namespace, name, query).await;
                let objects = match objects {
                    Ok(objects) => objects,
                    Err(kube::Error::Api(status)) => {
                        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                        return (code, status_document(code, &status.reason, &status.message, None));
                    }
                    Err(error) => {
                        let message = format!("Internal error occurred: {error}");
                        return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message);
                    }
                };
                let table = table_version(request);
                match (table, name, &objects[..]) {
                    (_, Some(name), []) => resource.not_found(namespace, name),
                    (Some(version), ..) => (StatusCode::OK, table_document(version, &objects)),
                    (None, Some(_), [object, ..]) => (StatusCode::OK, single_document(resource, object)),
                    (None, None, _) => (StatusCode::OK, list_document(resource, &objects)),
                }
            }
        }
    }

    /// Returns the metrics of the selected nodes or pods that have some.
    async fn objects(
        &self,
        resource: MetricsResource,
        namespace: Option<&str>,
        name: Option<&str>,
        query: &str,
    ) -> kube::Result<Vec<ObjectMetrics>> {
        let params = list_params(query);
        match resource {
            MetricsResource::Nodes => {
                let api: Api<Node> = Api::all(self.client.clone());
                let nodes = match name {
                    Some(name) => vec![api.get_metadata(name).await?],
                    None => api.list_metadata(&params).await?.items,
                };
                let storage = self.storage.read().unwrap_or_else(PoisonError::into_inner);
                Ok(nodes.iter().filter_map(|node| ObjectMetrics::of_node(&storage, &node.metadata)).collect())
            }
            MetricsResource::Pods => {
                let api: Api<Pod> = match namespace {
                    Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                    None => Api::all(self.client.clone()),
                };
                let pods = match name {
                    Some(name) => vec![api.get_metadata(name).await?],
                    None => api.list_metadata(&params).await?.items,
                };
                let storage = self.storage.read().unwrap_or_else(PoisonError::into_inner);
                Ok(pods.iter().filter_map(|pod| ObjectMetrics::of_pod(&storage, &pod.metadata)).collect())
            }
        }
    }
}

fn failure(code: StatusCode, reason: &str, message: &str) -> Reply {
    (code, status_document(code, reason, message, None))
}

fn list_params(query: &str) -> ListParams {
    let query = Query::parse(query);
    let selector = |name| query.get(name).map(str::to_owned);
    ListParams {
        label_selector: selector("labelSelector"),
        field_selector: selector("fieldSelector"),
        ..ListParams::default()
    }
}

/// Returns the version of `meta.k8s.io` if the client prefers a table.
fn table_version(request: &Request<Incoming>) -> Option<&'static str> {
    let accept = request.headers().get(header::ACCEPT)?.to_str().ok()?;
    let preferred = accept.split(',').next()?;
    match (preferred.contains("as=Table"), preferred.contains("v=v1beta1")) {
        (false, _) => None,
        (true, true) => Some("v1beta1"),
        (true, false) => Some("v1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        let of = |path| MetricsRequest::parse(path);
        assert_eq!(of("/apis/metrics.k8s.io/v1beta1/"), MetricsRequest::Resources);
        assert_eq!(
            of("/apis/metrics.k8s.io/v1beta1/nodes"),
            MetricsRequest::Objects { resource: MetricsResource::Nodes, namespace: None, name: None }
        );
        assert_eq!(
            of("/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods/p"),
            MetricsRequest::Objects { resource: MetricsResource::Pods, namespace: Some("ns"), name: Some("p") }
        );
        assert_eq!(of("/apis/metrics.k8s.io/v1/nodes"), MetricsRequest::Unknown);
    }

    #[test]
    fn selectors_are_passed_on() {
        let params = list_params("labelSelector=app%3Dx&fieldSelector=metadata.name%3Dp&limit=5");
        assert_eq!(params.label_selector.as_deref(), Some("app=x"));
        assert_eq!(params.field_selector.as_deref(), Some("metadata.name=p"));
    }
}
