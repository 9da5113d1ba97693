//! The overlay: pods of all nodes reach each other, by routes that follow the Node objects.
//!
//! Every node has a pod range (`spec.podCIDRs`). The back end is chosen for the whole cluster by the ConfigMap
//! [`NETWORK_CONFIG_MAP`] and may change at any time: `vxlan` encapsulates in the kernel, `host-gw` routes through nodes
//! on one network, `udp` encapsulates in this process. A link exists only while there are other nodes.
//!
//! Guarantees: a node that is deleted leaves no route; entries that another program deleted are restored.

mod kernel;
mod plan;
mod udp_tunnel;

use std::{io, net::IpAddr, str::FromStr, sync::Arc, time::Duration};

use client::{ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, runtime::watcher};
use sys::net::{self, IpCidr};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{pod_network::PodNetwork, views::NodeView};
use kernel::VxlanLink;
use plan::{OverlayLinks, OverlayPlan, RemoteNode, pod_cidrs_of};
use udp_tunnel::UdpTunnel;

/// The ConfigMap in `kube-system` with the network's settings.
pub const NETWORK_CONFIG_MAP: &str = "ferry-network";
/// The key of the back end in it.
pub const BACKEND_KEY: &str = "backend";
/// Bytes that VXLAN adds to a packet on IPv4; on IPv6 it is 20 more.
const VXLAN_OVERHEAD: u32 = 50;
/// Bytes that UDP and IPv4 add.
const UDP_OVERHEAD: u32 = 28;
const IPV6_OVERHEAD: u32 = 20;
/// The VXLAN network identifier.
const VXLAN_ID: u32 = 4096;
/// The interval at which entries are compared with the kernel although no node changed.
const RESYNC: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);

/// The way packets get from node to node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkBackend {
    /// VXLAN of the kernel.
    #[default]
    Vxlan,
    /// Routes through the nodes' own network.
    HostGw,
    /// UDP datagrams of this process.
    Udp,
}

/// A text names no back end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown network back end {0:?}: use vxlan, host-gw or udp")]
pub struct UnknownBackend(String);

impl FromStr for NetworkBackend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text {
            "vxlan" => Ok(Self::Vxlan),
            "host-gw" => Ok(Self::HostGw),
            "udp" => Ok(Self::Udp),
            _ => Err(UnknownBackend(text.into())),
        }
    }
}

impl std::fmt::Display for NetworkBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Vxlan => "vxlan",
            Self::HostGw => "host-gw",
            Self::Udp => "udp",
        })
    }
}

impl NetworkBackend {
    /// The MTU of pods whose packets leave through a link with `mtu`.
    fn pod_mtu(self, mtu: u32, node_ip: IpAddr) -> u32 {
        let outer = if node_ip.is_ipv4() { 0 } else { IPV6_OVERHEAD };
        let overhead = match self {
            Self::Vxlan => VXLAN_OVERHEAD + outer,
            Self::Udp => UDP_OVERHEAD + outer,
            Self::HostGw => 0,
        };
        mtu.saturating_sub(overhead).max(1280)
    }
}

/// Options of the overlay.
#[derive(Clone, Debug)]
pub struct OverlayOptions {
    /// This node.
    pub node_name: String,
    /// The node's pod network.
    pub pod_network: PodNetwork,
}

/// The part of this node in the pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRanges {
    /// The ranges of this node's pods.
    pub pod_cidrs: Vec<IpCidr>,
    /// The MTU of their links.
    pub mtu: u32,
}

/// Keeps the routes to other nodes in step with the Node objects.
pub struct Overlay {
    options: OverlayOptions,
    nodes: SharedInformer<NodeView>,
    settings: SharedInformer<ConfigMap>,
    changed: Arc<Notify>,
    ranges: watch::Sender<Option<NodeRanges>>,
    tunnel: Option<UdpTunnel>,
    warned: Option<String>,
}

impl Overlay {
    /// Starts the informers. `ranges` is told the ranges of this node, once it has them, and whenever they change.
    pub fn new(
        client: Client,
        options: OverlayOptions,
        ranges: watch::Sender<Option<NodeRanges>>,
        shutdown: CancellationToken,
    ) -> Self {
        let nodes = SharedInformer::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone());
        let own = watcher::Config::default().fields(&format!("metadata.name={NETWORK_CONFIG_MAP}"));
        let settings = SharedInformer::start(Api::namespaced(client, "kube-system"), own, shutdown);
        let changed: Arc<Notify> = Arc::default();
        let notify = changed.clone();
        nodes.add_event_handler(move |event: &ResourceEvent<NodeView>| {
            if is_relevant(event) {
                notify.notify_one();
            }
        });
        let notify = changed.clone();
        settings.add_event_handler(move |_: &ResourceEvent<ConfigMap>| notify.notify_one());
        Self { options, nodes, settings, changed, ranges, tunnel: None, warned: None }
    }

    /// Keeps the routes until `shutdown`; they stay after it, so that pods keep their connections.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let work = async {
            self.nodes.wait_for_cache_sync().await;
            self.settings.wait_for_cache_sync().await;
            loop {
                let pause = match self.sync().await {
                    Ok(()) => {
                        self.warned = None;
                        RESYNC
                    }
                    Err(error) => {
                        self.warn_once(&error);
                        RETRY
                    }
                };
                // The resync is a safety net, for entries that another program deleted.
                let _ = tokio::time::timeout(pause, self.changed.notified()).await;
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    fn warn_once(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.warned.as_ref() != Some(&text) {
            tracing::warn!(error = text, "overlay: routes to other nodes were not set, retrying");
            self.warned = Some(text);
        }
    }

    /// The back end that the ConfigMap names; one that it misspells is not used.
    fn backend(&self) -> io::Result<NetworkBackend> {
        let settings = self.settings.get("kube-system", NETWORK_CONFIG_MAP);
        let named = settings.as_ref().and_then(|map| map.data.as_ref()?.get(BACKEND_KEY));
        named.map_or(Ok(NetworkBackend::default()), |name| name.parse().map_err(io::Error::other))
    }

    async fn sync(&mut self) -> io::Result<()> {
        let backend = self.backend()?;
        let nodes = self.nodes.list();
        let own = nodes.iter().find(|node| node.metadata.name.as_ref() == Some(&self.options.node_name));
        let pod_cidrs = own.map(|node| pod_cidrs_of(node)).unwrap_or_default();
        if pod_cidrs.is_empty() {
            return Ok(());
        }
        let node_ip = self.options.pod_network.node_ip;
        let underlay = kernel::underlay_link(node_ip)?;
        let mtu = backend.pod_mtu(underlay.mtu, node_ip);
        self.publish_ranges(NodeRanges { pod_cidrs: pod_cidrs.clone(), mtu });
        let mut remote: Vec<RemoteNode> = nodes
            .iter()
            .filter(|node| node.metadata.name.as_ref() != Some(&self.options.node_name))
            .filter_map(|node| RemoteNode::from_view(node))
            .collect();
        remote.sort_by(|one, other| one.name.cmp(&other.name));
        let addresses: Vec<IpAddr> = pod_cidrs.iter().map(IpCidr::first).collect();
        let overlay = self.ensure_link(backend, &remote, &addresses, (underlay.index, mtu)).await?;
        let links = OverlayLinks { overlay, underlay: underlay.index };
        let plan = OverlayPlan::new(backend, links, addresses.first().copied(), &remote);
        let network = self.options.pod_network.clone();
        run_blocking(move || {
            network.set_direct_ranges(&plan.direct_ranges).map_err(io::Error::other)?;
            kernel::apply_plan(&plan, overlay, network.pod_cidr)
        })
        .await
    }

    fn publish_ranges(&self, ranges: NodeRanges) {
        self.ranges.send_if_modified(|published| {
            let is_new = published.as_ref() != Some(&ranges);
            *published = Some(ranges);
            is_new
        });
    }

    /// Makes the link of the back end, or removes it where none is needed; returns its index, 0 for none.
    async fn ensure_link(
        &mut self,
        backend: NetworkBackend,
        remote: &[RemoteNode],
        addresses: &[IpAddr],
        (underlay, mtu): (u32, u32),
    ) -> io::Result<u32> {
        let network = &self.options.pod_network;
        let name = &network.overlay_link;
        let is_needed = !remote.is_empty();
        if backend != NetworkBackend::Udp || !is_needed {
            // The TUN link ends with its tunnel.
            self.tunnel = None;
        }
        if backend == NetworkBackend::HostGw || !is_needed {
            net::delete_link(name)?;
            return Ok(0);
        }
        let index = match backend {
            NetworkBackend::Udp => {
                if self.tunnel.is_none() || net::find_link(name)?.is_none() {
                    self.tunnel = None;
                    net::delete_link(name)?;
                    self.tunnel = Some(UdpTunnel::start(name, network.node_ip).await?);
                }
                let link = net::link_by_name(name)?;
                if link.mtu != mtu {
                    net::set_mtu(link.index, mtu)?;
                }
                link.index
            }
            _ => {
                let node_name = &self.options.node_name;
                VxlanLink { name, node_name, node_ip: network.node_ip, id: VXLAN_ID, underlay, mtu }.ensure()?
            }
        };
        kernel::configure_link(index, addresses)?;
        if let Some(tunnel) = &self.tunnel {
            tunnel.set_nodes(remote);
        }
        Ok(index)
    }
}

/// Whether an event changes what the overlay reads: heartbeats do not.
fn is_relevant(event: &ResourceEvent<NodeView>) -> bool {
    let ResourceEvent::Updated { old, new } = event else { return true };
    old.spec.pod_cidrs != new.spec.pod_cidrs || old.internal_addresses() != new.internal_addresses()
}

async fn run_blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
