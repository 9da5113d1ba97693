//! Everything that can be known to be wrong before a start, found without changing anything.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::Path,
};

use anyhow::Context;
use sys::{net::Ipv4Cidr, process};

use crate::{
    containerd::{install, programs::RuntimePrograms},
    instance::ClusterInstance,
    kubeconfig::Kubeconfig,
    options::{RuntimeChoice, UpOptions},
    pidfile, pki, runtime_check,
    user_error::user_error,
};

/// The longest path that a unix socket's address can hold.
const SOCKET_PATH: usize = 107;

/// Refuses what cannot work, with its remedy.
pub async fn check_machine(options: &UpOptions) -> anyhow::Result<()> {
    check_root()?;
    data_directory(&options.instance)?;
    not_running(&options.instance)?;
    port_free("the kubelet's", "--kubelet-port", options.kubelet_address(), options.kubelet_port)?;
    if options.join.is_none() {
        control_plane(options).await?;
    }
    container_runtime(options).await
}

/// Refuses what the control plane cannot work with.
async fn control_plane(options: &UpOptions) -> anyhow::Result<()> {
    port_free("the API server's", "--port", options.bind_address, options.port)?;
    if options.port == options.kubelet_port {
        return Err(user_error(
            format!("API server and kubelet cannot share port {}", options.port),
            "Choose another --kubelet-port.",
        ));
    }
    pod_range_free(options)?;
    Kubeconfig::read(&options.kubeconfig)?.check_place()?;
    pki::check_pki(&options.instance.pki())?;
    // A damaged store must be known before anything is started.
    options.storage.check(&options.instance.store()).await
}

/// Refuses users other than root.
pub fn check_root() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(user_error(
        "ferry makes network links, mounts and control groups: it must run as root",
        "Type it again with sudo.",
    ))
}

fn data_directory(instance: &ClusterInstance) -> anyhow::Result<()> {
    let data = instance.data();
    let socket = instance.containerd_socket().with_extension("sock.ttrpc");
    if socket.as_os_str().len() > SOCKET_PATH {
        return Err(user_error(
            format!("{} is too long a path: sockets in it could not be reached", data.display()),
            "Choose a shorter --data-dir.",
        ));
    }
    let existing = data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if let Err(why) = check_writable(existing) {
        return Err(user_error(format!("{} cannot be used: {why}", existing.display()), "Choose another --data-dir."));
    }
    if !is_ours(instance).with_context(|| data.display().to_string())? {
        return Err(user_error(
            format!("{} holds files that are not ferry's", data.display()),
            "Choose an empty or new --data-dir: `ferry down --purge` deletes all of it.",
        ));
    }
    Ok(())
}

fn check_writable(directory: &Path) -> io::Result<()> {
    if !directory.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

/// Whether the data directory is absent, empty or was made by ferry.
fn is_ours(instance: &ClusterInstance) -> io::Result<bool> {
    match fs::read_dir(instance.data()) {
        Ok(mut entries) => Ok(entries.next().is_none() || instance.is_cluster()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn not_running(instance: &ClusterInstance) -> anyhow::Result<()> {
    if !instance.lock().exists() || pidfile::InstanceLock::take(instance)?.is_some() {
        return Ok(());
    }
    Err(already_running(instance))
}

/// The refusal to run a cluster twice.
pub fn already_running(instance: &ClusterInstance) -> anyhow::Error {
    let who = match pidfile::running_pid(instance) {
        Some(process) => format!("pid {}, since {}", process.pid, pidfile::format_start_time(&process)),
        None => "it starts or stops at this moment".into(),
    };
    user_error(
        format!("ferry is already running with {} ({who})", instance.data().display()),
        "See it with `ferry status`, or stop it with `ferry down`.",
    )
}

fn port_free(whose: &str, flag: &str, address: IpAddr, port: u16) -> anyhow::Result<()> {
    let error = match TcpListener::bind((address, port)) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        return Err(user_error(
            format!("cannot listen on {address} port {port}: {error}"),
            "Choose another --bind-address.",
        ));
    }
    let holder = process::find_listener(port)
        .map(|holder| format!(" by {} (pid {})", holder.name().unwrap_or_else(|_| "a process".into()), holder.pid));
    Err(user_error(
        format!("{whose} port {port} is in use{}", holder.unwrap_or_default()),
        format!("Stop that process, or choose another port with {flag}."),
    ))
}

fn pod_range_free(options: &UpOptions) -> anyhow::Result<()> {
    let pods = options.pod_cidr;
    if !(1..=28).contains(&pods.prefix) {
        return Err(user_error(
            format!("{pods} is too {} for pods", if pods.prefix == 0 { "large" } else { "small" }),
            "Choose a --pod-cidr such as 10.42.0.0/16.",
        ));
    }
    if pods.overlaps(&options.service_cidr) {
        return Err(user_error(
            format!("the pod range {pods} overlaps the service range {}", options.service_cidr),
            "Choose another --pod-cidr.",
        ));
    }
    let links = sys::net::list_links().context("cannot read the network links")?;
    for address in sys::net::list_addresses().context("cannot read the network addresses")? {
        let IpAddr::V4(ip) = address.ip else { continue };
        let name = links.iter().find(|link| link.index == address.link).map_or("?", |link| &link.name);
        // The gateway address of a pod's own link, from before a restart.
        let is_pod_link = name.starts_with("veth") && address.prefix == 32;
        let is_own = [options.instance.bridge(), options.instance.overlay_link()].iter().any(|own| own == name);
        if !is_own && !is_pod_link && pods.overlaps(&network_of(ip, address.prefix)) {
            return Err(user_error(
                format!("the pod range {pods} overlaps {ip}/{} of the link {name}", address.prefix),
                "Choose another --pod-cidr.",
            ));
        }
    }
    Ok(())
}

fn network_of(ip: Ipv4Addr, prefix: u8) -> Ipv4Cidr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Ipv4Cidr { base: Ipv4Addr::from(u32::from(ip) & mask), prefix }
}

async fn container_runtime(options: &UpOptions) -> anyhow::Result<()> {
    match &options.runtime {
        RuntimeChoice::External(endpoint) => runtime_check::connect_external(endpoint).await.map(drop),
        RuntimeChoice::Ferry => Ok(()),
        RuntimeChoice::Own => {
            let missing = RuntimePrograms::missing();
            if missing.is_empty() || options.install && install::can_install(&missing)? {
                return Ok(());
            }
            Err(user_error(
                format!("the cluster's own container runtime needs what is not installed: {}", missing.join(", ")),
                "`ferry up --install-runtime` installs it.",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_directories_are_not_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let instance = ClusterInstance::at(directory.path()).unwrap();
        data_directory(&instance).unwrap();
        fs::write(directory.path().join("thesis.txt"), "").unwrap();
        assert!(data_directory(&instance).unwrap_err().to_string().contains("not ferry's"));
        fs::write(instance.lock(), "").unwrap();
        data_directory(&instance).unwrap();
    }

    #[test]
    fn a_file_is_no_directory_and_a_long_path_no_place_for_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = data_directory(&ClusterInstance::at(&file).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("not a directory"), "{refused}");
        let long = directory.path().join("x".repeat(100));
        assert!(data_directory(&ClusterInstance::at(&long).unwrap()).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn a_busy_port_names_its_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused =
            port_free("the API server's", "--port", Ipv4Addr::LOCALHOST.into(), port).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())) && refused.contains("--port"), "{refused}");
    }
}
