//! containerd's configuration: everything that it writes stays under the data directory, nothing is loaded that a cluster
//! does not need.

use std::path::{Path, PathBuf};

use runtime::pause;

use crate::instance::ClusterInstance;

/// The path of the configuration file.
pub fn config_path(instance: &ClusterInstance) -> PathBuf {
    instance.containerd().join("config.toml")
}

/// Renders the configuration. `restricted`: this host does not allow lowering `oom_score_adj`.
pub fn render_config(instance: &ClusterInstance, cni: &Path, restricted: bool) -> String {
    let home = instance.containerd();
    let quote = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        r#"version = 2
root = {root}
state = {state}
# What this cluster has no use for, or what would write elsewhere.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[grpc]
address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = {restricted}
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {cni}
conf_dir = {conf}

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
Root = {runc}

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {registries}
"#,
        root = quote(&home.join("root")),
        state = quote(&home.join("state")),
        socket = quote(&instance.containerd_socket()),
        pause = pause::PAUSE_IMAGE,
        cni = quote(cni),
        conf = quote(&instance.cni()),
        runc = quote(&home.join("runc")),
        registries = quote(&instance.registries()),
    )
}

/// The entry for every registry: ask the mirror first, then the registry itself.
pub fn render_mirror(port: u16) -> String {
    format!("[host.\"http://127.0.0.1:{port}\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_under_the_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        let instance = ClusterInstance::at(directory.path()).unwrap();
        let text = render_config(&instance, Path::new("/usr/lib/cni"), true);
        let data = instance.data().display().to_string();
        for key in ["root", "state", "address", "conf_dir", "config_path", "Root"] {
            let value = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
            assert!(value.starts_with(&format!("\"{data}/")), "{key} = {value}");
        }
        assert!(text.contains("restrict_oom_score_adj = true\n"));
        assert!(text.contains("bin_dir = \"/usr/lib/cni\"\n"));
        assert!(render_config(&instance, Path::new("/x"), false).contains("restrict_oom_score_adj = false\n"));
    }

    #[test]
    fn the_mirror_only_pulls() {
        assert_eq!(render_mirror(5000), "[host.\"http://127.0.0.1:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    }
}
