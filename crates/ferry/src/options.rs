//! The validated options of `up`, with defaults filled in.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use sys::net::Ipv4Cidr;

use crate::{
    arguments::UpArguments, caller::CallingUser, instance::ClusterInstance, pki::ClusterNames, state::InstanceState,
    storage::StorageOptions, user_error::user_error,
};

/// The default endpoint of an external runtime.
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// Which container runtime runs the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// A containerd of the cluster's own.
    Own,
    /// One that others started, at this endpoint.
    External(String),
}

/// Everything that a start needs to know.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The cluster.
    pub instance: ClusterInstance,
    /// Which runtime.
    pub runtime: RuntimeChoice,
    /// Packages may be installed.
    pub install: bool,
    /// The user's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The owner of a new kubeconfig.
    pub kubeconfig_owner: Option<(u32, u32)>,
    /// The node's name.
    pub node_name: String,
    /// The node's address.
    pub node_ip: IpAddr,
    /// The API server's listen address.
    pub bind_address: IpAddr,
    /// The API server's port.
    pub port: u16,
    /// The kubelet's port.
    pub kubelet_port: u16,
    /// The image mirror's port; `None`: any.
    pub mirror_port: Option<u16>,
    /// The range of pod addresses.
    pub pod_cidr: Ipv4Cidr,
    /// The range of service addresses.
    pub service_cidr: Ipv4Cidr,
    /// The range of load balancer addresses; `None`: the nodes' own.
    pub load_balancer_range: Option<sys::net::IpCidr>,
    /// The port of the node's DNS server.
    pub dns_port: u16,
    /// Whether there are initializers.
    pub initializers: bool,
    /// Storage of objects.
    pub storage: StorageOptions,
}

impl UpOptions {
    /// Resolves the command line.
    pub fn resolve(arguments: &UpArguments, caller: &CallingUser) -> anyhow::Result<Self> {
        let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
        let state = InstanceState::load(&instance)?;
        let node_ip = match arguments.node_ip {
            Some(ip) => ip,
            None => sys::net::host_address(&[&instance.bridge()]).context("cannot read the network links")?.into(),
        };
        Ok(Self {
            runtime: runtime(arguments, &state),
            install: arguments.install_runtime,
            kubeconfig: kubeconfig(arguments, caller)?,
            kubeconfig_owner: caller.ids,
            node_name: node_name(arguments)?,
            node_ip,
            bind_address: arguments.bind_address,
            port: arguments.port,
            kubelet_port: arguments.kubelet_port,
            mirror_port: Some(arguments.mirror_port).filter(|port| *port != 0).or(state.mirror_port),
            pod_cidr: arguments.pod_cidr,
            service_cidr: arguments.service_cidr,
            load_balancer_range: arguments.load_balancer_range,
            dns_port: arguments.dns_port,
            initializers: arguments.enable_initializers,
            storage: arguments.storage.clone(),
            instance,
        })
    }

    /// The names in the certificates.
    pub fn names(&self) -> ClusterNames {
        let bound = Some(self.bind_address).filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
        let service = Ipv4Addr::from(u32::from(self.service_cidr.base).wrapping_add(1));
        let mut ips: Vec<IpAddr> = [self.node_ip].into_iter().chain(bound).chain([service.into()]).collect();
        ips.sort_unstable();
        ips.dedup();
        ClusterNames { node: self.node_name.clone(), ips }
    }

    /// The kubelet's listen address: the API server connects to the node's address.
    pub fn kubelet_address(&self) -> IpAddr {
        if self.bind_address.is_unspecified() { self.bind_address } else { self.node_ip }
    }

    /// The API server's URL for clients on this machine.
    pub fn server_url(&self) -> String {
        let host = if self.bind_address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { self.bind_address };
        format!("https://{}", std::net::SocketAddr::new(host, self.port))
    }
}

fn runtime(arguments: &UpArguments, state: &InstanceState) -> RuntimeChoice {
    match &arguments.runtime_endpoint {
        Some(endpoint) => RuntimeChoice::External(endpoint.clone()),
        None if arguments.install_runtime || state.own_runtime => RuntimeChoice::Own,
        None => RuntimeChoice::External(CONTAINERD.into()),
    }
}

fn kubeconfig(arguments: &UpArguments, caller: &CallingUser) -> anyhow::Result<PathBuf> {
    let path = arguments.kubeconfig.clone().or_else(|| caller.kubeconfig()).ok_or_else(|| {
        user_error(
            "your home directory is not known, so neither is your kubeconfig",
            "Say where to write it with --kubeconfig FILE.",
        )
    })?;
    std::path::absolute(&path).with_context(|| path.display().to_string())
}

fn node_name(arguments: &UpArguments) -> anyhow::Result<String> {
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let name = arguments.node_name.clone().unwrap_or_else(host);
    let part_ok = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(part_ok) {
        return Ok(name);
    }
    Err(user_error(
        format!("{name:?} cannot be a node's name: only lower-case letters, digits, '-' and '.' are allowed"),
        "Choose one with --node-name NAME.",
    ))
}
