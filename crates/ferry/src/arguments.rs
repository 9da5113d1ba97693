//! The arguments of `ferry up`, `ferry status` and `ferry down`.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

use crate::storage::StorageOptions;

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

    /// Install containerd and runc if they are missing, and run a containerd of the cluster's own
    ///
    /// Needed once: the data directory remembers it.
    #[arg(long)]
    pub install_runtime: bool,

    /// Use the CRI runtime that answers at this socket
    ///
    /// Default: the cluster's own containerd once installed, else unix:///run/containerd/containerd.sock.
    #[arg(long, value_name = "unix:///PATH", conflicts_with = "install_runtime")]
    pub runtime_endpoint: Option<String>,

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

    /// The range of pod addresses
    #[arg(long, value_name = "CIDR", default_value = "10.42.0.0/24")]
    pub pod_cidr: sys::net::Ipv4Cidr,

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
  sudo ferry up --install-runtime
      First start on a fresh Debian or Ubuntu: brings its own containerd.

  sudo ferry up
      Every later start; or the first one where containerd already runs.

  sudo ferry up --runtime-endpoint unix:///run/crio/crio.sock
      Use another CRI runtime, with the pod network that it is set up with.

  sudo ferry up --data-dir /srv/second --port 7443 --kubelet-port 10350 --pod-cidr 10.43.0.0/24
      A second cluster beside the first.

Then:
  kubectl get nodes
  kubectl create deployment nginx --image=nginx --replicas=3";

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
