//! The metrics server in the node process of the control plane, and the objects that it needs.

use std::{net::SocketAddr, sync::Arc};

use addons::metrics_server::{MetricsServer, register_metrics_api};
use anyhow::Context;
use component_server::serve_https;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{Api, Client};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    apply_object::{apply_object, role_ref, subject},
    options::UpOptions,
    pki::ClusterPki,
    shutdown::ComponentSet,
};

/// The user of the metrics server.
pub const METRICS_USER: &str = "system:ferry:metrics-server";
/// The role that lets those who may view a namespace see its metrics.
const READER_ROLE: &str = "system:aggregated-metrics-reader";
/// The client certificate with which the API server reaches aggregated servers.
const FRONT_PROXY_USER: &str = "front-proxy-client";

/// Serves the resource metrics API on a free port of the node's address, and registers it.
pub async fn start_metrics_api(
    options: &UpOptions,
    pki: &ClusterPki,
    admin: &Client,
    client: Client,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    apply_rules(admin).await?;
    let tls = Arc::new(pki.certificates.metrics_server_tls(&pki.front_proxy_ca)?);
    let listener = TcpListener::bind(SocketAddr::new(options.node_ip, 0)).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.node_ip))?;
    register_metrics_api(admin, listener.local_addr()?, &pki.ca).await?;
    let server = Arc::new(MetricsServer::new(client, FRONT_PROXY_USER));
    let scraper = server.clone();
    components.start("metrics scraper", |shutdown| async move {
        scraper.run(shutdown).await;
        Ok(())
    });
    components.start("metrics API", |shutdown| async move {
        serve_https(server, listener, tls, shutdown).await;
        Ok(())
    });
    Ok(())
}

async fn apply_rules(admin: &Client) -> kube::Result<()> {
    let rules = json!([
        { "apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"] },
        { "apiGroups": [""], "resources": ["nodes/proxy", "nodes/metrics"], "verbs": ["get"] },
    ]);
    apply_object::<ClusterRole>(Api::all(admin.clone()), METRICS_USER, json!({ "rules": rules })).await?;
    let subjects = json!([subject("User", METRICS_USER)]);
    let binding = json!({ "roleRef": role_ref("ClusterRole", METRICS_USER), "subjects": subjects });
    apply_object::<ClusterRoleBinding>(Api::all(admin.clone()), METRICS_USER, binding).await?;
    let labels: serde_json::Map<_, _> = ["admin", "edit", "view"]
        .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true".into()))
        .into_iter()
        .collect();
    let read =
        json!([{ "apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"] }]);
    let reader = json!({ "rules": read, "metadata": { "labels": labels } });
    apply_object::<ClusterRole>(Api::all(admin.clone()), READER_ROLE, reader).await
}
