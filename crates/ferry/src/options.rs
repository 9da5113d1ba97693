//! The validated options of `up`, with defaults filled in.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use network::overlay::NetworkBackend;
use sys::net::Ipv4Cidr;

use crate::{
    arguments::{ContainerRuntimeName, JoinArguments, UpArguments},
    caller::CallingUser,
    instance::ClusterInstance,
    join_target::{JoinCredentials, JoinTarget},
    pki::ClusterNames,
    state::InstanceState,
    storage::StorageOptions,
    user_error::user_error,
};

const JOIN_USAGE: &str = "Type what `ferry token create` printed on the first node: \
    ferry join https://HOST:6443 --token TOKEN --ca-cert-hash sha256:HASH";
/// The default endpoint of an external runtime.
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// Which container runtime runs the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// A containerd of the cluster's own.
    Own,
    /// The runtime in this program.
    Ferry,
    /// One that others started, at this endpoint.
    External(String),
}

impl RuntimeChoice {
    /// Whether the cluster runs it, with a pod network of its own.
    pub fn is_own(&self) -> bool {
        !matches!(self, Self::External(_))
    }
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
    /// The way packets get from node to node; `None`: as before.
    pub network_backend: Option<NetworkBackend>,
    /// The range of load balancer addresses; `None`: the nodes' own.
    pub load_balancer_range: Option<sys::net::IpCidr>,
    /// The port of the node's DNS server.
    pub dns_port: u16,
    /// Whether there are initializers.
    pub initializers: bool,
    /// Storage of objects.
    pub storage: StorageOptions,
    /// The cluster that this node joins; `None`: this machine has the control plane.
    pub join: Option<JoinTarget>,
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
            network_backend: arguments.network_backend,
            load_balancer_range: arguments.load_balancer_range,
            dns_port: arguments.dns_port,
            initializers: arguments.enable_initializers,
            storage: arguments.storage.clone(),
            // A node that joined a cluster is started again as what it is.
            join: state.joined_server.map(|server| JoinTarget { server, credentials: None }),
            instance,
        })
    }

    /// Resolves the command line of a node that joins a cluster. The ranges of pods and services are the cluster's.
    pub fn resolve_join(arguments: &JoinArguments, caller: &CallingUser) -> anyhow::Result<Self> {
        let mut options = Self::resolve(&arguments.up_arguments(), caller)?;
        let credentials = match (&arguments.token, &arguments.ca_cert_hash) {
            (Some(token), Some(hash)) => Some(JoinCredentials { token: token.clone(), ca_hash: hash.clone() }),
            (None, None) => None,
            _ => return Err(user_error("a token and a hash belong together", JOIN_USAGE)),
        };
        let known = options.join.take().map(|target| target.server);
        let server = arguments.server.clone().map(|server| server.trim_end_matches('/').to_owned()).or(known);
        let server = server.ok_or_else(|| user_error("which cluster?", JOIN_USAGE))?;
        if !server.starts_with("https://") {
            return Err(user_error(format!("{server:?} is not the URL of an API server"), JOIN_USAGE));
        }
        options.join = Some(JoinTarget { server, credentials });
        Ok(options)
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
    match (&arguments.runtime_endpoint, arguments.container_runtime) {
        (Some(endpoint), _) => RuntimeChoice::External(endpoint.clone()),
        (None, Some(ContainerRuntimeName::Ferry)) => RuntimeChoice::Ferry,
        (None, _) if arguments.install_runtime => RuntimeChoice::Own,
        (None, Some(ContainerRuntimeName::Containerd)) if !state.own_runtime => {
            RuntimeChoice::External(CONTAINERD.into())
        }
        _ if state.own_runtime => RuntimeChoice::Own,
        // Pods of a cluster that used another runtime are there: the data directory keeps it.
        _ if !state.ferry_runtime && state.runtime_endpoint.is_some() => {
            RuntimeChoice::External(state.runtime_endpoint.clone().unwrap_or_default())
        }
        _ => RuntimeChoice::Ferry,
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct UpLine {
        #[command(flatten)]
        up: UpArguments,
    }

    fn choice(line: &str, state: &InstanceState) -> RuntimeChoice {
        let words = ["ferry"].into_iter().chain(line.split_whitespace());
        runtime(&UpLine::parse_from(words).up, state)
    }

    #[test]
    fn own_runtime_is_the_default_of_a_new_cluster() {
        let new = InstanceState::default();
        assert_eq!(choice("", &new), RuntimeChoice::Ferry);
        assert_eq!(choice("--install-runtime", &new), RuntimeChoice::Own);
        assert_eq!(choice("--container-runtime=containerd", &new), RuntimeChoice::External(CONTAINERD.into()));
        let named = RuntimeChoice::External("unix:///a.sock".into());
        assert_eq!(choice("--runtime-endpoint unix:///a.sock", &new), named);
        assert_eq!(choice("--container-runtime-endpoint unix:///a.sock", &new), named);
    }

    #[test]
    fn the_runtime_of_the_last_start_is_kept() {
        let endpoint = |path: &str| Some(format!("unix://{path}"));
        let own = InstanceState { own_runtime: true, runtime_endpoint: endpoint("/c.sock"), ..Default::default() };
        assert_eq!(choice("", &own), RuntimeChoice::Own);
        assert_eq!(choice("--container-runtime=containerd", &own), RuntimeChoice::Own);
        assert_eq!(choice("--container-runtime=ferry", &own), RuntimeChoice::Ferry);
        let external = InstanceState { runtime_endpoint: endpoint("/e.sock"), ..Default::default() };
        assert_eq!(choice("", &external), RuntimeChoice::External("unix:///e.sock".into()));
        let ferry = InstanceState { ferry_runtime: true, runtime_endpoint: endpoint("/f.sock"), ..Default::default() };
        assert_eq!(choice("", &ferry), RuntimeChoice::Ferry);
        assert_eq!(choice("--container-runtime=containerd", &ferry), RuntimeChoice::External(CONTAINERD.into()));
    }
}
