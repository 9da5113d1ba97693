//! The start of a node without a control plane: its certificates, runtime, network and kubelet.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use network::overlay::NETWORK_CONFIG_MAP;
use sys::net::Ipv4Cidr;
use tokio::net::TcpListener;

use super::node_identity::NodeIdentity;
use crate::{
    cluster_network::{DnsSockets, NetworkClients, POD_CIDR_KEY, SERVICE_CIDR_KEY, start_node_network},
    join_target::JoinTarget,
    local_path::start_local_path_provisioner,
    node_components::{KubeletStart, container_runtime, wait_for_node},
    options::UpOptions,
    shutdown::ComponentSet,
    state::InstanceState,
    steps::StepReporter,
};

/// Starts the components of a node that belongs to the cluster at `target`.
pub async fn start_worker(
    options: &UpOptions,
    target: &JoinTarget,
    steps: &mut StepReporter,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let mut options = options.clone();
    let mut state = InstanceState::load(&options.instance)?;
    let kubelet_address = (options.kubelet_address(), options.kubelet_port);
    let listener = TcpListener::bind(kubelet_address)
        .await
        .with_context(|| format!("cannot listen on {} port {}", kubelet_address.0, kubelet_address.1))?;
    let dns = DnsSockets::bind(options.node_ip, options.dns_port).await?;

    let joining = join_cluster(&options, target, &mut state);
    let (identity, ranges) = steps.step("API server", joining).await?;
    (options.pod_cidr, options.service_cidr) = ranges;
    let runtime = steps.step("container runtime", container_runtime(&options, &mut state, components)).await?;
    for warning in &state.warnings {
        steps.warn(warning);
    }
    let clients = NetworkClients { proxy: identity.client("kube-proxy")?, network: identity.client("ferry-network")? };
    steps.step("network", start_node_network(&options, clients, dns, components)).await?;
    start_local_path_provisioner(&options, identity.client("local-path")?, components);
    let tls = Arc::new(identity.kubelet_tls()?);
    let client = identity.client("kubelet")?;
    let kubelet = KubeletStart { options: &options, tls, endpoint: runtime, listener };
    steps.step("kubelet", kubelet.start(client.clone(), components)).await?;
    let renewed = options.clone();
    components.start("certificate renewal", |shutdown| async move {
        identity.run_renewal(renewed, shutdown).await;
        Ok(())
    });
    wait_for_node(&options, client, steps, components).await
}

/// The ranges of pods and services.
type ClusterRanges = (Ipv4Cidr, Ipv4Cidr);

async fn join_cluster(
    options: &UpOptions,
    target: &JoinTarget,
    state: &mut InstanceState,
) -> anyhow::Result<((NodeIdentity, ClusterRanges), String)> {
    let identity = NodeIdentity::obtain(options, &target.server, target.credentials.as_ref()).await?;
    let remembered = state.pod_cidr.as_ref().zip(state.service_cidr.as_ref());
    let ranges = match remembered.and_then(|(pods, services)| Some((pods.parse().ok()?, services.parse().ok()?))) {
        Some(ranges) => ranges,
        None => read_ranges(&identity.client("ferry-join")?).await?,
    };
    state.joined_server = Some(target.server.clone());
    state.save(&options.instance)?;
    Ok(((identity, ranges), target.server.clone()))
}

async fn read_ranges(client: &Client) -> anyhow::Result<ClusterRanges> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let settings = api.get(NETWORK_CONFIG_MAP).await.context("settings of the network")?.data.unwrap_or_default();
    let range = |key: &str| {
        let text = settings.get(key).with_context(|| format!("ConfigMap {NETWORK_CONFIG_MAP} has no {key}"))?;
        text.parse::<Ipv4Cidr>().map_err(|error| anyhow::anyhow!("ConfigMap {NETWORK_CONFIG_MAP}: {key}: {error}"))
    };
    Ok((range(POD_CIDR_KEY)?, range(SERVICE_CIDR_KEY)?))
}
