//! The container runtime in this program: where a cluster keeps its things, and `ferry container-runtime`, which serves it
//! alone.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Args;
use runtime::server::{RuntimeOptions, start_runtime};

use crate::{instance::ClusterInstance, log, preflight, shutdown::ComponentSet};

/// Serve the Container Runtime Interface alone, for a kubelet, crictl or critest
///
/// Containers keep running when it ends; the next start finds them again.
#[derive(Clone, Debug, Args)]
#[command(name = "container-runtime")]
pub struct ContainerRuntimeArguments {
    /// Directory of state, images and layers
    #[arg(long, value_name = "DIR")]
    root: PathBuf,

    /// The socket; default: cri.sock in the root directory
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Directory of CNI configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_config_dir: PathBuf,

    /// Directory of CNI plug-ins; may be given several times
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    cni_plugin_dir: Vec<PathBuf>,

    /// Directory of registry settings, as containerd has it: HOST/hosts.toml
    #[arg(long, value_name = "DIR")]
    registry_config_dir: Option<PathBuf>,

    /// Log level, as Kubernetes' components have it
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    v: u8,
}

/// Serves CRI until SIGTERM or SIGINT.
pub fn run_container_runtime(arguments: ContainerRuntimeArguments) -> anyhow::Result<ExitCode> {
    preflight::check_root()?;
    log::init_logging(arguments.v);
    let root = std::path::absolute(&arguments.root).context("--root")?;
    std::fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    let options = RuntimeOptions {
        socket: arguments.socket.unwrap_or_else(|| root.join("cri.sock")),
        root,
        cni_config: arguments.cni_config_dir,
        cni_plugins: arguments.cni_plugin_dir,
        registry_hosts: arguments.registry_config_dir,
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut components = ComponentSet::new()?;
        let listener = start_runtime(options).await?;
        components.start("container runtime", |shutdown| async move {
            listener.serve(shutdown).await;
            Ok(())
        });
        let ended = components.wait_for_shutdown().await;
        components.stop_all().await;
        ended.map(|()| ExitCode::SUCCESS)
    })
}

/// Returns the options of the runtime of a cluster.
pub fn runtime_options(instance: &ClusterInstance) -> RuntimeOptions {
    let root = instance.runtime();
    RuntimeOptions {
        socket: root.join("cri.sock"),
        root,
        cni_config: instance.cni(),
        cni_plugins: vec![instance.cni_plugins()],
        registry_hosts: Some(instance.registries()),
    }
}
