//! Health check node ports: load balancers ask them whether this node has endpoints of a service.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{HeaderValue, Response, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::{ProxyHealth, json_response};
use crate::http_server::{ResponseBody, serve_http};

/// A served port.
struct HealthPort {
    port: u16,
    local_endpoints: Arc<AtomicUsize>,
    shutdown: CancellationToken,
}

/// The health check ports of all services.
pub(crate) struct ServiceHealthServers {
    health: Arc<ProxyHealth>,
    ports: HashMap<String, HealthPort>,
}

impl ServiceHealthServers {
    pub fn new(health: Arc<ProxyHealth>) -> Self {
        Self { health, ports: HashMap::new() }
    }

    /// Serves the port of a service, or none.
    pub async fn update(&mut self, service: &str, port: Option<u16>, local_endpoints: usize) {
        if let Some(known) = self.ports.get(service).filter(|known| Some(known.port) == port) {
            known.local_endpoints.store(local_endpoints, Ordering::Relaxed);
            return;
        }
        if let Some(ended) = self.ports.remove(service) {
            ended.shutdown.cancel();
        }
        let Some(port) = port else { return };
        let listener = match TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), port)).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(service, port, %error, "service proxy: health check port cannot be served");
                return;
            }
        };
        let served = HealthPort {
            port,
            local_endpoints: Arc::new(AtomicUsize::new(local_endpoints)),
            shutdown: CancellationToken::new(),
        };
        let (count, health, name) = (served.local_endpoints.clone(), self.health.clone(), service.to_owned());
        let respond = move |_: &str| respond(&name, count.load(Ordering::Relaxed), health.is_healthy());
        tokio::spawn(serve_http(listener, respond, served.shutdown.clone()));
        self.ports.insert(service.to_owned(), served);
    }
}

impl Drop for ServiceHealthServers {
    fn drop(&mut self) {
        self.ports.values().for_each(|port| port.shutdown.cancel());
    }
}

fn respond(service: &str, count: usize, healthy: bool) -> Response<ResponseBody> {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\
         \t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    );
    let status = if count > 0 && healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = json_response(status, body);
    response.headers_mut().insert("x-load-balancing-endpoint-weight", HeaderValue::from(count));
    response
}
