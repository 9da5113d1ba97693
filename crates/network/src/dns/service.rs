//! The Service `kube-dns` and its endpoints: the DNS servers of all nodes, each used by its own node first.
//!
//! A Service with a selector is another DNS server's, for example CoreDNS in pods: its endpoints are left alone, and the
//! nodes' servers give way to it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use client::{ApiErrorExt, SharedInformer};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";
const SLICE: &str = "kube-dns-nodes";
const MANAGER: &str = "ferry-dns";
const RETRY: Duration = Duration::from_secs(1);

/// The DNS service of a cluster.
#[derive(Clone, Debug)]
pub struct DnsService {
    /// Its address.
    pub address: IpAddr,
    /// The port of the nodes' servers.
    pub node_port: u16,
}

impl DnsService {
    /// Keeps the Service and its endpoints until `shutdown`.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let nodes: SharedInformer<Node> =
            SharedInformer::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone());
        let own = watcher::Config::default().fields(&format!("metadata.name={SERVICE}"));
        let services: SharedInformer<Service> =
            SharedInformer::start(Api::namespaced(client.clone(), NAMESPACE), own, shutdown.clone());
        let notify = changed.clone();
        nodes.add_event_handler(move |_| notify.notify_one());
        let notify = changed.clone();
        services.add_event_handler(move |_| notify.notify_one());
        let work = async {
            nodes.wait_for_cache_sync().await;
            services.wait_for_cache_sync().await;
            let mut last = None;
            loop {
                match self.sync(&client, &nodes, &mut last).await {
                    Ok(()) => changed.notified().await,
                    Err(error) => {
                        tracing::warn!(%error, "DNS service: not published, retrying");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    async fn sync(
        &self,
        client: &Client,
        nodes: &SharedInformer<Node>,
        last: &mut Option<Value>,
    ) -> Result<(), kube::Error> {
        let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
        let service = match services.get_opt(SERVICE).await? {
            Some(service) => service,
            None => self.create_service(&services).await?,
        };
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
        let has_selector = service.spec.and_then(|spec| spec.selector).is_some_and(|selector| !selector.is_empty());
        if has_selector {
            *last = None;
            return match slices.delete(SLICE, &Default::default()).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            };
        }
        let slice = self.endpoint_slice(&nodes.list());
        if last.as_ref() == Some(&slice) {
            return Ok(());
        }
        slices.patch(SLICE, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&slice)).await?;
        *last = Some(slice);
        Ok(())
    }

    async fn create_service(&self, services: &Api<Service>) -> Result<Service, kube::Error> {
        let port = |name: &str, protocol: &str| json!({ "name": name, "port": 53, "protocol": protocol });
        let labels =
            json!({ "k8s-app": SERVICE, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS" });
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": SERVICE, "namespace": NAMESPACE, "labels": labels },
            "spec": {
                "clusterIP": self.address.to_string(),
                "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
            },
        });
        let service: Service = serde_json::from_value(service).map_err(kube::Error::SerdeError)?;
        services.create(&PostParams::default(), &service).await
    }

    /// One endpoint per node that is Ready.
    fn endpoint_slice(&self, nodes: &[Arc<Node>]) -> Value {
        let mut endpoints = BTreeMap::new();
        for node in nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            if let Some(address) = internal_address(node) {
                let endpoint = json!({
                    "addresses": [address],
                    "nodeName": name,
                    "conditions": { "ready": is_ready(node) },
                    "hints": { "forNodes": [{ "name": name }] },
                });
                endpoints.insert(name, endpoint);
            }
        }
        let port = |name: &str, protocol: &str| json!({ "name": name, "port": self.node_port, "protocol": protocol });
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": SLICE,
                "namespace": NAMESPACE,
                "labels": {
                    "kubernetes.io/service-name": SERVICE,
                    "endpointslice.kubernetes.io/managed-by": "dns.ferry.dev",
                },
            },
            "addressType": "IPv4",
            "endpoints": endpoints.into_values().collect::<Vec<_>>(),
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        })
    }
}

fn internal_address(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let is_usable = |text: &str| text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4() && !ip.is_loopback());
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP" && is_usable(&address.address))?;
    Some(internal.address.clone())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
