//! What `up` is asked to do, in its final form: defaults filled in, names checked, the caller's wishes resolved.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use sys::net::Ipv4Cidr;

use crate::{
    caller::Caller, cli::Up, instance::Instance, pki::Names, refusal::refusal, state::State, storage::Storage,
};

/// Where an external runtime answers unless told otherwise.
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// Which container runtime runs the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A containerd of the cluster's own.
    Own,
    /// One that others started, at this endpoint.
    External(String),
}

/// Everything that a start needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster.
    pub instance: Instance,
    /// Which runtime.
    pub runtime: Runtime,
    /// Packages may be installed.
    pub install: bool,
    /// The user's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Whom a new kubeconfig belongs to.
    pub kubeconfig_owner: Option<(u32, u32)>,
    /// The node's name.
    pub node_name: String,
    /// The node's address.
    pub node_ip: IpAddr,
    /// Where the API server listens.
    pub bind_address: IpAddr,
    /// The API server's port.
    pub port: u16,
    /// The kubelet's port.
    pub kubelet_port: u16,
    /// The image mirror's port; `None`: any.
    pub mirror_port: Option<u16>,
    /// The range of pod addresses.
    pub pod_cidr: Ipv4Cidr,
    /// Whether there are initializers.
    pub initializers: bool,
    /// Where the objects are kept.
    pub storage: Storage,
}

impl Options {
    /// Resolves the command line.
    pub fn resolve(arguments: &Up, caller: &Caller) -> anyhow::Result<Self> {
        let instance = Instance::at(&arguments.data_dir).context("--data-dir")?;
        let state = State::load(&instance)?;
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
            initializers: arguments.enable_initializers,
            storage: arguments.storage.clone(),
            instance,
        })
    }

    /// The names in the certificates.
    pub fn names(&self) -> Names {
        let bound = Some(self.bind_address).filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
        let mut ips: Vec<IpAddr> = [self.node_ip].into_iter().chain(bound).collect();
        ips.dedup();
        Names { node: self.node_name.clone(), ips }
    }

    /// Where the kubelet listens: the API server reaches it at the node's address.
    pub fn kubelet_address(&self) -> IpAddr {
        if self.bind_address.is_unspecified() { self.bind_address } else { self.node_ip }
    }

    /// Where clients on this machine reach the API server.
    pub fn server_url(&self) -> String {
        let host = if self.bind_address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { self.bind_address };
        format!("https://{}", std::net::SocketAddr::new(host, self.port))
    }
}

fn runtime(arguments: &Up, state: &State) -> Runtime {
    match &arguments.runtime_endpoint {
        Some(endpoint) => Runtime::External(endpoint.clone()),
        None if arguments.install_runtime || state.own_runtime => Runtime::Own,
        None => Runtime::External(CONTAINERD.into()),
    }
}

fn kubeconfig(arguments: &Up, caller: &Caller) -> anyhow::Result<PathBuf> {
    let path = arguments.kubeconfig.clone().or_else(|| caller.kubeconfig()).ok_or_else(|| {
        refusal(
            "your home directory is not known, so neither is your kubeconfig",
            "Say where to write it with --kubeconfig FILE.",
        )
    })?;
    std::path::absolute(&path).with_context(|| path.display().to_string())
}

fn node_name(arguments: &Up) -> anyhow::Result<String> {
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
    Err(refusal(
        format!("{name:?} cannot be a node's name: only lower-case letters, digits, '-' and '.' are allowed"),
        "Choose one with --node-name NAME.",
    ))
}
