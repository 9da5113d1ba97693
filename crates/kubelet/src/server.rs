//! The kubelet's HTTPS server: logs, exec, attach, port-forward, pods and metrics.
//!
//! Client certificates are verified by TLS; everything else is checked by [`KubeletAuth`].

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use component_server::{HttpsHandler, UserInfo};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use runtime::cri::types::ContainerState;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use transport::query::Query;

use crate::{
    auth::KubeletAuth,
    cadvisor_metrics, container_calls,
    context::KubeletContext,
    debug_pages,
    http_handler::{ResponseBody, text_response},
    logs, metrics, resource_metrics,
    runtime_status::labels,
    streams::{self, StreamKind},
    summary, system_logs,
};

/// The kubelet's API.
pub struct KubeletApi {
    /// The kubelet.
    pub kubelet: Arc<KubeletContext>,
    /// Checks requests.
    pub access: KubeletAuth,
    /// Ends streams.
    pub shutdown: CancellationToken,
}

impl HttpsHandler for KubeletApi {
    /// TLS has verified the chain.
    fn user_of_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<UserInfo> {
        UserInfo::from_certificate(chain.first()?)
    }

    async fn handle(
        self: Arc<Self>,
        certificate_user: Arc<Option<UserInfo>>,
        mut request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let user = (*certificate_user).as_ref();
        match self.access.authorize_request(user, &method, &path, request.headers_mut()).await {
            Ok(()) => handle_request(self.kubelet.clone(), request, self.shutdown.clone()).await,
            Err(refused) => {
                let (status, message) = refused.status_and_message();
                text_response(status, message)
            }
        }
    }
}

async fn handle_request(
    kubelet: Arc<KubeletContext>,
    request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Response<ResponseBody> {
    let path = request.uri().path().to_string();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_debugging =
        matches!(parts[0], "exec" | "attach" | "portForward" | "run" | "containerLogs" | "logs" | "runningpods");
    if is_debugging && !kubelet.settings.enable_debugging_handlers {
        return text_response(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.");
    }
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["healthz"] | ["healthz", "ping" | "log" | "syncloop"]) => text_response(StatusCode::OK, "ok"),
        (&Method::GET, ["pods"]) => list_pods(&kubelet),
        (&Method::GET, ["metrics"]) => text_response(StatusCode::OK, &metrics::render_metrics(&kubelet.pods.list())),
        (&Method::GET, ["runningpods"]) => running_pods(&kubelet).await,
        (&Method::GET, ["stats", "summary"]) => match summary::collect_summary(&kubelet, &kubelet.node_name).await {
            Ok(summary) => json_response(&summary),
            Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, &error.message()),
        },
        (&Method::GET, ["metrics", "resource"]) => {
            text_response(StatusCode::OK, &resource_metrics::render_resource_metrics(&kubelet.cri).await)
        }
        (&Method::GET, ["containerLogs", namespace, pod, container]) => {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            logs::serve_container_logs(&kubelet, [namespace, pod, container], &query).await
        }
        (_, ["exec" | "attach", namespace, pod, uid, _] | ["portForward", namespace, pod, uid])
            if !has_uid(&kubelet, namespace, pod, uid) =>
        {
            text_response(StatusCode::NOT_FOUND, "pod does not exist")
        }
        (
            &Method::GET | &Method::POST,
            [stream @ ("exec" | "attach"), namespace, pod, container]
            | [stream @ ("exec" | "attach"), namespace, pod, _, container],
        ) => {
            let purpose = if *stream == "exec" { StreamKind::Exec } else { StreamKind::Attach };
            streams::serve_stream(kubelet, purpose((*container).to_string()), [namespace, pod], request, shutdown).await
        }
        (&Method::GET | &Method::POST, ["portForward", namespace, pod] | ["portForward", namespace, pod, _]) => {
            streams::serve_stream(kubelet, StreamKind::PortForward, [namespace, pod], request, shutdown).await
        }
        (&Method::GET, ["metrics", "cadvisor"]) => {
            text_response(StatusCode::OK, &cadvisor_metrics::render_cadvisor_metrics(&kubelet).await)
        }
        (&Method::GET, ["metrics", "probes"]) => text_response(StatusCode::OK, &kubelet.probe_counts.render()),
        (&Method::GET, ["configz"]) => json_response(&debug_pages::configz(&kubelet.settings)),
        (&Method::GET, ["statusz"]) => text_response(StatusCode::OK, &debug_pages::render_statusz(&kubelet)),
        (&Method::GET, ["flagz"]) => text_response(StatusCode::OK, &debug_pages::render_flagz(&kubelet.settings)),
        (&Method::GET, ["logs", ..]) if !kubelet.settings.enable_system_log_handler => {
            text_response(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.")
        }
        (&Method::GET, ["logs", below @ ..]) => system_logs::serve_system_logs(&below.join("/")).await,
        (&Method::POST, ["run", namespace, pod, container] | ["run", namespace, pod, _, container]) => {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            container_calls::run_in_container(&kubelet, [namespace, pod, container], &query).await
        }
        (&Method::POST, ["checkpoint", namespace, pod, container]) => {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            container_calls::checkpoint_container(&kubelet, [namespace, pod, container], &query).await
        }
        _ => text_response(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Whether the pod of that name is the one with the uid, not one created later.
fn has_uid(kubelet: &KubeletContext, namespace: &str, name: &str, uid: &str) -> bool {
    kubelet.pods.get(namespace, name).is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid))
}

fn list_pods(kubelet: &KubeletContext) -> Response<ResponseBody> {
    let items: Vec<Arc<Pod>> = kubelet.pods.list();
    let items: Vec<&Pod> = items.iter().map(|pod| &**pod).collect();
    json_response(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
}

/// Lists the pods whose containers run, as the runtime knows them.
async fn running_pods(kubelet: &KubeletContext) -> Response<ResponseBody> {
    let containers = match kubelet.cri.list_containers(HashMap::new()).await {
        Ok(containers) => containers,
        Err(error) => return text_response(StatusCode::INTERNAL_SERVER_ERROR, &error.message()),
    };
    let mut pods: BTreeMap<[String; 3], Vec<Value>> = BTreeMap::new();
    for container in containers.iter().filter(|container| container.state == ContainerState::ContainerRunning as i32) {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let image = container.image.as_ref().map_or("", |image| image.image.as_str());
        let pod = [labels::POD_NAMESPACE, labels::POD_NAME, labels::POD_UID].map(label);
        let entry = json!({ "name": label(labels::CONTAINER), "image": image, "resources": {} });
        pods.entry(pod).or_default().push(entry);
    }
    let pod = |([namespace, name, uid], containers): ([String; 3], Vec<Value>)| {
        json!({ "metadata": { "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": null },
            "spec": { "containers": containers }, "status": {} })
    };
    let items: Vec<Value> = pods.into_iter().map(pod).collect();
    json_response(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
}

fn json_response(value: &Value) -> Response<ResponseBody> {
    let mut response = text_response(StatusCode::OK, &value.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
