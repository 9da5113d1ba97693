//! The arguments of `ferry up`, `ferry status` and `ferry down`.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

use crate::{bootstrap_token::BootstrapToken, storage::StorageOptions};

/// The data directory unless another is named.
pub const DATA_DIR: &str = "/var/lib/ferry";

/// Start the cluster, or start it again where it stopped
///
/// Everything is checked first: when something is wrong, ferry says what and how to mend it, and changes nothing. Then
/// the cluster starts in the background; each step is shown with its time, and the command returns once the node is
/// Ready. Your kubeconfig gets a context `ferry`, which becomes the current one; everything else in it is kept.
///
/// Stopping ferry does not stop the containers: the next `ferry up` takes them over. `ferry down` stops all.
#[derive(Clone, Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub struct UpArguments {
    /// Run in this terminal, with the log on standard error, until Ctrl-C
    #[arg(long)]
    pub foreground: bool,

    /// Directory of the cluster's objects, certificates, images and logs
    ///
    /// Two clusters on one machine need two data directories, ports and pod ranges.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,

    /// Write the kubeconfig here instead of the calling user's
    ///
    /// Default: the first file of $KUBECONFIG, else ~/.kube/config, of the user who called sudo.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Run pods with a containerd of the cluster's own; install containerd and runc if they are missing
    ///
    /// Needed once: the data directory remembers it.
    #[arg(long)]
    pub install_runtime: bool,

    /// Run pods with the CRI runtime that answers at this socket
    ///
    /// The data directory remembers it.
    #[arg(
        long,
        visible_alias = "container-runtime-endpoint",
        value_name = "unix:///PATH",
        conflicts_with = "install_runtime"
    )]
    pub runtime_endpoint: Option<String>,

    /// Run pods with the runtime in this program, or with containerd
    ///
    /// Default: the runtime of the last start, else the one in this program, which needs nothing else installed.
    #[arg(long, value_name = "NAME", value_enum, conflicts_with_all = ["install_runtime", "runtime_endpoint"])]
    pub container_runtime: Option<ContainerRuntimeName>,

    /// The node's name; default: this machine's host name
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// The node's address; default: that of the default route's link
    #[arg(long, value_name = "IP")]
    pub node_ip: Option<IpAddr>,

    /// The address that the API server listens on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,

    /// The API server's port
    #[arg(long, value_name = "PORT", default_value_t = 6443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// The kubelet's port, for logs and exec
    #[arg(long, value_name = "PORT", default_value_t = 10250, value_parser = clap::value_parser!(u16).range(1..))]
    pub kubelet_port: u16,

    /// The loopback port that serves images loaded by hand to the runtime; 0: choose one and keep it
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub mirror_port: u16,

    /// The range of pod addresses; every node gets a /24 of it
    #[arg(long, value_name = "CIDR", default_value = "10.42.0.0/16")]
    pub pod_cidr: sys::net::Ipv4Cidr,

    /// Back end that carries packets between nodes: vxlan, host-gw (all nodes on one network) or udp
    ///
    /// It holds for all nodes and can be changed by another start. Default: that of the last start, else vxlan.
    #[arg(long, value_name = "NAME")]
    pub network_backend: Option<network::overlay::NetworkBackend>,

    /// The range of service addresses
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16")]
    pub service_cidr: sys::net::Ipv4Cidr,

    /// The range of addresses for services of type LoadBalancer; default: the nodes' own addresses
    ///
    /// The network must route the range to the nodes.
    #[arg(long, value_name = "CIDR")]
    pub load_balancer_range: Option<sys::net::IpCidr>,

    /// The port of the node's DNS server, which the service kube-dns leads to
    #[arg(long, value_name = "PORT", default_value_t = 10053, value_parser = clap::value_parser!(u16).range(1..))]
    pub dns_port: u16,

    /// Enable initializers: InitializerConfigurations name controllers that see new objects first
    ///
    /// Kubernetes has had this until 1.13.
    #[arg(long)]
    pub enable_initializers: bool,

    #[command(flatten)]
    pub storage: StorageOptions,

    /// Log level, as Kubernetes' components have it
    ///
    /// 0 to 2: changes of state. 3: also every API request. 4: also every sync and decision. 6: also the stages of
    /// requests and syncs with their durations. 8: everything.
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    pub v: u8,

    /// Be the background process: report steps on standard output
    #[arg(long, hide = true)]
    pub report_steps: bool,
}

const UP_EXAMPLES: &str = "\
Examples:
  sudo ferry up
      Every start. Pods run with the container runtime in this program.

  sudo ferry up --install-runtime
      Run pods with containerd instead; brings its own on Debian and Ubuntu.

  sudo ferry up --runtime-endpoint unix:///run/crio/crio.sock
      Use another CRI runtime, with the pod network that it is set up with.

  sudo ferry up --data-dir /srv/second --port 7443 --kubelet-port 10350 --pod-cidr 10.43.0.0/16
      A second cluster beside the first.

Then:
  kubectl get nodes
  kubectl create deployment nginx --image=nginx --replicas=3";

/// Make this machine a node of a cluster
///
/// `ferry token create` on the cluster's first node prints the whole command. The node asks for a certificate with the
/// token, starts its container runtime, network and kubelet in the background, and is Ready when the command returns.
/// Later starts need no arguments: `ferry up` does the same.
#[derive(Clone, Debug, Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub struct JoinArguments {
    /// The URL of the cluster's API server
    #[arg(value_name = "https://HOST:PORT")]
    pub server: Option<String>,

    /// The bootstrap token
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<BootstrapToken>,

    /// The hash of the public key of the cluster's CA, so that no other host can take the cluster's place
    #[arg(long, value_name = "sha256:HEX")]
    pub ca_cert_hash: Option<String>,

    /// Run in this terminal, with the log on standard error, until Ctrl-C
    #[arg(long)]
    pub foreground: bool,

    /// Directory of the node's certificates, images and logs
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,

    /// Run pods with a containerd of the node's own; install containerd and runc if they are missing
    #[arg(long)]
    pub install_runtime: bool,

    /// Run pods with the CRI runtime that answers at this socket
    #[arg(
        long,
        visible_alias = "container-runtime-endpoint",
        value_name = "unix:///PATH",
        conflicts_with = "install_runtime"
    )]
    pub runtime_endpoint: Option<String>,

    /// Run pods with the runtime in this program, or with containerd
    #[arg(long, value_name = "NAME", value_enum, conflicts_with_all = ["install_runtime", "runtime_endpoint"])]
    pub container_runtime: Option<ContainerRuntimeName>,

    /// The node's name; default: this machine's host name
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// The node's address; default: that of the default route's link
    #[arg(long, value_name = "IP")]
    pub node_ip: Option<IpAddr>,

    /// The kubelet's port, for logs and exec
    #[arg(long, value_name = "PORT", default_value_t = 10250, value_parser = clap::value_parser!(u16).range(1..))]
    pub kubelet_port: u16,

    /// The port of the node's DNS server; the same on all nodes
    #[arg(long, value_name = "PORT", default_value_t = 10053, value_parser = clap::value_parser!(u16).range(1..))]
    pub dns_port: u16,

    /// Log level, as Kubernetes' components have it
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    pub v: u8,

    /// Be the background process: report steps on standard output
    #[arg(long, hide = true)]
    pub report_steps: bool,
}

const JOIN_EXAMPLES: &str = "\
Examples:
  sudo ferry token create
      On the first node: prints the command below with everything filled in.

  sudo ferry join https://192.0.2.1:6443 --token abcdef.0123456789abcdef --ca-cert-hash sha256:…
      On the new node.";

/// A container runtime that `--container-runtime` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ContainerRuntimeName {
    /// The runtime in this program
    Ferry,
    /// The cluster's own containerd once installed, else that of the machine
    Containerd,
}

impl JoinArguments {
    /// The arguments that a node without a control plane shares with one that has it.
    pub fn up_arguments(&self) -> UpArguments {
        let mut up = UpArguments::defaults();
        up.foreground = self.foreground;
        up.data_dir.clone_from(&self.data_dir);
        // Nothing is written there: the administrator's kubeconfig is on the first node.
        up.kubeconfig = Some(self.data_dir.join("admin.kubeconfig"));
        up.install_runtime = self.install_runtime;
        up.runtime_endpoint.clone_from(&self.runtime_endpoint);
        up.container_runtime = self.container_runtime;
        up.node_name.clone_from(&self.node_name);
        up.node_ip = self.node_ip;
        up.kubelet_port = self.kubelet_port;
        up.dns_port = self.dns_port;
        up
    }
}

impl UpArguments {
    /// The arguments of a plain `ferry up`.
    fn defaults() -> Self {
        #[derive(clap::Parser)]
        struct PlainUp {
            #[command(flatten)]
            up: UpArguments,
        }
        <PlainUp as clap::Parser>::parse_from(["ferry"]).up
    }
}

/// Make, list or delete the tokens with which nodes join
#[derive(Clone, Debug, Args)]
pub struct TokenArguments {
    #[command(subcommand)]
    pub command: TokenCommands,

    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, global = true)]
    pub data_dir: PathBuf,
}

/// Operations on tokens.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TokenCommands {
    /// Make a token and print the command that joins a node with it
    Create {
        /// Validity, such as 30m or 24h; 0: until it is deleted
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        ttl: String,
    },
    /// List the tokens, without their secrets
    List,
    /// Delete a token
    Delete {
        /// The token, or its first six characters
        #[arg(value_name = "TOKEN")]
        token: String,
    },
}

/// Drain a node, or remove it from the cluster
#[derive(Clone, Debug, Args)]
pub struct NodeArguments {
    #[command(subcommand)]
    pub command: NodeCommands,

    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, global = true)]
    pub data_dir: PathBuf,
}

/// Operations on nodes.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum NodeCommands {
    /// Move the pods of a node to others and let none in; `kubectl uncordon` undoes it
    Drain {
        /// The node's name
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Drain a node and delete it from the cluster; `ferry down --purge` on the machine itself does the rest
    Remove {
        /// The node's name
        #[arg(value_name = "NODE")]
        node: String,

        /// Do not drain: the machine is gone
        #[arg(long)]
        force: bool,
    },
}

/// Show what runs, where things are, and what is wrong
///
/// The exit code is 0 when all is well, 1 when something is wrong, 3 when the cluster does not run.
#[derive(Clone, Debug, Args)]
pub struct StatusArguments {
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
}

/// Stop the cluster with all its containers and remove every trace from the machine
///
/// No process, mount, network link, address, packet filter or control group of the cluster remains, whatever state it
/// was in. Its objects, certificates and images stay in the data directory for the next `ferry up`.
#[derive(Clone, Debug, Args)]
pub struct DownArguments {
    /// Remove the data directory and the kubeconfig's context too: the cluster is forgotten
    #[arg(long)]
    pub purge: bool,

    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
}
