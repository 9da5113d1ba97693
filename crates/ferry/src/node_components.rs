//! The components that every node runs, with a control plane or without: container runtime and kubelet.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, runtime::wait::await_condition};
use kubelet::{EvictionSignal, KubeletSettings, ThresholdValue};
use tokio::net::TcpListener;

use crate::{
    cluster_network,
    containerd::Containerd,
    network,
    node_readiness::{node_readiness, ready_condition},
    options::{RuntimeChoice, UpOptions},
    own_runtime, runtime_check,
    shutdown::ComponentSet,
    state::InstanceState,
    steps::StepReporter,
    user_error::user_error,
};

/// Time for the node to become Ready.
const READY: Duration = Duration::from_secs(60);

/// Finds or starts the runtime; returns its endpoint.
pub async fn container_runtime(
    options: &UpOptions,
    state: &mut InstanceState,
    components: &mut ComponentSet,
) -> anyhow::Result<(String, String)> {
    let instance = &options.instance;
    state.node_name = Some(options.node_name.clone());
    state.own_runtime = options.runtime == RuntimeChoice::Own;
    state.ferry_runtime = options.runtime == RuntimeChoice::Ferry;
    let (endpoint, cri, found) = match &options.runtime {
        RuntimeChoice::External(endpoint) => {
            state.warnings.clear();
            (endpoint.clone(), runtime_check::connect_external(endpoint).await?, true)
        }
        RuntimeChoice::Own => {
            state.warnings = network::set_up(options, state)?;
            let mut containerd = Containerd::new(instance)?;
            let (cri, found) = containerd.ensure_running().await?;
            containerd.load_pause(&cri).await?;
            serve_mirror(options, state, components).await?;
            components.start("containerd", |shutdown| containerd.run_supervised(shutdown));
            let pod_network = network::pod_network_of(options);
            components.start("pod network", |shutdown| async move { Ok(pod_network.run_repair(shutdown).await?) });
            (instance.own_endpoint(), cri, found)
        }
        RuntimeChoice::Ferry => {
            state.warnings = network::set_up(options, state)?;
            serve_mirror(options, state, components).await?;
            let listener = runtime::server::start_runtime(own_runtime::runtime_options(instance)).await?;
            components.start("container runtime", |shutdown| async move {
                listener.serve(shutdown).await;
                Ok(())
            });
            let pod_network = network::pod_network_of(options);
            components.start("pod network", |shutdown| async move { Ok(pod_network.run_repair(shutdown).await?) });
            let endpoint = instance.runtime_endpoint();
            (endpoint.clone(), runtime_check::connect_cri(&endpoint).await?, false)
        }
    };
    state.runtime_endpoint = Some(endpoint.clone());
    state.save(instance)?;
    let version = cri.fetch_version().await?;
    let how = if found { "found" } else { "started" };
    Ok((endpoint, format!("{how} {} {}", version.runtime_name, version.runtime_version)))
}

/// Serves images that were loaded by hand to the cluster's own containerd.
async fn serve_mirror(
    options: &UpOptions,
    state: &mut InstanceState,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let wished = TcpListener::bind((Ipv4Addr::LOCALHOST, options.mirror_port.unwrap_or(0))).await;
    let listener = match wished {
        Ok(listener) => listener,
        // The port of the last start is taken: any other will do, because containerd is told.
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("image mirror")?,
    };
    let port = listener.local_addr()?.port();
    Containerd::set_mirror(&options.instance, port)?;
    state.mirror_port = Some(port);
    let images = options.instance.images();
    components.start("image mirror", |shutdown| async move {
        runtime::mirror::serve_mirror(listener, images, shutdown).await;
        Ok(())
    });
    Ok(())
}

/// The node's kubelet, about to start.
pub struct KubeletStart<'a> {
    /// The options of this start.
    pub options: &'a UpOptions,
    /// The TLS configuration of its server.
    pub tls: Arc<rustls::ServerConfig>,
    /// The endpoint of the container runtime.
    pub endpoint: String,
    /// The listener of its server.
    pub listener: TcpListener,
}

impl KubeletStart<'_> {
    /// Starts it as a component.
    pub async fn start(self, client: Client, components: &mut ComponentSet) -> anyhow::Result<((), String)> {
        let Self { options, tls, endpoint, listener } = self;
        let instance = &options.instance;
        let config = kubelet::KubeletConfig {
            node_name: options.node_name.clone(),
            node_ip: options.node_ip,
            cluster_dns: kubelet::ClusterDns {
                servers: vec![cluster_network::dns_address(options.service_cidr).into()],
                domain: cluster_network::CLUSTER_DOMAIN.into(),
            },
            runtime_endpoint: endpoint,
            root_dir: instance.kubelet(),
            pod_logs_dir: instance.pod_logs(),
            cgroup_root: format!("{}/kubepods", instance.cgroup()),
            listener: listener.into_std()?,
            settings: node_settings(),
            tls,
        };
        components
            .start("kubelet", |shutdown| async move { Ok(kubelet::run_kubelet(config, client, shutdown).await?) });
        Ok(((), format!("port {}", options.kubelet_port)))
    }
}

/// Waits until the node is Ready.
pub async fn wait_for_node(
    options: &UpOptions,
    client: Client,
    steps: &mut StepReporter,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    steps.begin("node Ready");
    tokio::select! {
        ready = node_ready(client, &options.node_name) => ready?,
        ended = components.wait_for_shutdown() => {
            ended?;
            bail!("asked to end before the node was Ready");
        }
    }
    steps.done(&format!("{} ({})", options.node_name, options.node_ip));
    Ok(())
}

async fn node_ready(client: Client, name: &str) -> anyhow::Result<()> {
    let last = Mutex::new("the node has not registered".to_owned());
    let started = Timestamp::now().as_second();
    let is_ready = |node: Option<&Node>| {
        let (ready, message) = node_readiness(node);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = message;
        // What the node said before this start does not count.
        ready && node.and_then(last_heartbeat).is_some_and(|at| at.as_second() >= started)
    };
    match tokio::time::timeout(READY, await_condition(Api::<Node>::all(client), name, is_ready)).await {
        Ok(waited) => waited.map(drop).map_err(|error| anyhow!(error)),
        Err(_) => {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Err(user_error(
                format!("the node {name} is not Ready after {} s: {last}", READY.as_secs()),
                "The log says more; `ferry down` removes what was started.",
            ))
        }
    }
}

fn last_heartbeat(node: &Node) -> Option<Timestamp> {
    ready_condition(node)?.last_heartbeat_time.as_ref().map(|time| time.0)
}

/// Disk space, in percent of the file system, below which pods are evicted from nodes that `ferry up` and `ferry join` make.
/// Their disks are seldom theirs alone; upstream's limits are for machines that do nothing else.
const EVICTION_DISK_PERCENT: f64 = 5.0;

/// Returns the settings of the kubelet in this process: upstream's, with lower limits of disk space.
fn node_settings() -> KubeletSettings {
    let mut settings = KubeletSettings::default();
    let is_space = |signal| matches!(signal, EvictionSignal::NodeFsAvailable | EvictionSignal::ImageFsAvailable);
    for threshold in settings.eviction.thresholds.iter_mut().filter(|threshold| is_space(threshold.signal)) {
        threshold.value = ThresholdValue::Percentage(EVICTION_DISK_PERCENT);
    }
    // Unused images go before pods do.
    settings.image_gc.high_threshold_percent = 94;
    settings.image_gc.low_threshold_percent = 90;
    settings
}
