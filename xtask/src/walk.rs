//! `cargo xtask walk`: from a fresh clone to three nginx pods that answer, with nothing but the commands a user types.
//!
//! It can be repeated: what is installed, built, running or deployed already is left as it is.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::{IpAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    packages::{self, KUBECTL},
    process::{self, as_root, command, output, step},
    repository,
};

const REPLICAS: usize = 3;

/// Build ferry, start a cluster, and run three nginx pods on it
#[derive(Debug, clap::Args)]
pub struct WalkArgs {
    /// Data directory of the cluster; its kubeconfig is then DIR/admin.kubeconfig
    ///
    /// Default: ferry's own data directory, and the kubeconfig of the calling user.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Cargo profile to build ferry with
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,

    /// Stop and remove the cluster afterwards, whether or not everything worked
    #[arg(long)]
    purge: bool,
}

pub fn run(args: &WalkArgs) -> Result<()> {
    let walk = ClusterWalk::new(args)?;
    step("what the walk needs", || packages::ensure_installed(&[KUBECTL]))?;
    step("build", || {
        process::run(command("cargo build -p ferry --profile").arg(&args.profile).current_dir(repository()))
    })?;
    let walked = walk.cluster();
    if args.purge {
        let purged = step("remove the cluster", || process::run(&mut walk.ferry("down --purge")));
        return walked.and(purged);
    }
    println!("\nNext:\n  {}kubectl get pods\n  {}", walk.kubeconfig_hint(), walk.down_hint());
    walked
}

struct ClusterWalk {
    ferry: PathBuf,
    data_dir: Option<PathBuf>,
}

impl ClusterWalk {
    fn new(args: &WalkArgs) -> Result<Self> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
        let target = std::path::absolute(target)?;
        let data_dir = args.data_dir.as_deref().map(std::path::absolute).transpose()?;
        let folder = if args.profile == "dev" { "debug" } else { &args.profile };
        Ok(Self { ferry: target.join(folder).join("ferry"), data_dir })
    }

    /// Everything from `ferry up` on.
    fn cluster(&self) -> Result<()> {
        step("start the cluster", || self.start())?;
        step("load the nginx image", || process::run(&mut self.image()))?;
        let start = Instant::now();
        step("create the deployment", || self.create())?;
        step("wait for it", || self.kubectl("wait --for=condition=Available deployment/nginx"))?;
        let took = start.elapsed();
        self.kubectl("get pods -o wide")?;
        self.fetch_all()?;
        println!("\nFrom the deployment to {REPLICAS} running pods: {:.2} s", took.as_secs_f64());
        Ok(())
    }

    /// `ferry` with these arguments, as root, on this walk's data directory.
    fn ferry(&self, arguments: &str) -> Command {
        let mut command = if process::is_root() { Command::new(&self.ferry) } else { command("sudo") };
        if !process::is_root() {
            command.arg(&self.ferry);
        }
        command.args(arguments.split_whitespace());
        if let Some(dir) = &self.data_dir {
            command.arg("--data-dir").arg(dir);
        }
        command
    }

    fn start(&self) -> Result<()> {
        let running = self.ferry("status").output().context("cannot run ferry")?.status.success();
        if running {
            println!("  it runs already and is left as it is");
            return Ok(());
        }
        process::run(&mut self.up())
    }

    fn up(&self) -> Command {
        let mut command = self.ferry("up");
        if let Some(kubeconfig) = self.kubeconfig() {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command
    }

    /// A process of its own, because the cluster's directory is root's.
    fn image(&self) -> Command {
        let xtask = env::current_exe().unwrap_or_else(|_| "xtask".into());
        let mut command = as_root("env");
        command.arg(xtask).args(["image", "nginx"]);
        if let Some(dir) = &self.data_dir {
            command.arg("--data-dir").arg(dir);
        }
        command
    }

    fn create(&self) -> Result<()> {
        let existing = output(&mut self.kubectl_command("get deployment nginx --ignore-not-found -o name"))?;
        if existing.trim().is_empty() {
            return self.kubectl(&format!("create deployment nginx --image=nginx --replicas={REPLICAS}"));
        }
        println!("  it exists already and is left as it is");
        Ok(())
    }

    fn kubectl(&self, arguments: &str) -> Result<()> {
        process::run(&mut self.kubectl_command(arguments))
    }

    fn kubectl_command(&self, arguments: &str) -> Command {
        let mut command = command(&format!("kubectl {arguments}"));
        if let Some(kubeconfig) = self.kubeconfig() {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }

    fn kubeconfig(&self) -> Option<PathBuf> {
        Some(self.data_dir.as_ref()?.join("admin.kubeconfig"))
    }

    /// Asks each pod for its page.
    fn fetch_all(&self) -> Result<()> {
        let pods = output(&mut self.kubectl_command("get pods -l app=nginx -o json"))?;
        let pods = addresses(&serde_json::from_str(&pods)?)?;
        for (name, address) in &pods {
            let status = fetch(*address).with_context(|| format!("http://{address}/ of pod {name}"))?;
            println!("{name}  http://{address}/  {status}");
            ensure!(status.split(' ').nth(1) == Some("200"), "pod {name} does not serve its page: {status}");
        }
        ensure!(pods.len() >= REPLICAS, "{} of {REPLICAS} pods are running", pods.len());
        Ok(())
    }

    fn kubeconfig_hint(&self) -> String {
        self.kubeconfig().map_or_else(String::new, |file| format!("KUBECONFIG={} ", file.display()))
    }

    fn down_hint(&self) -> String {
        let sudo = if process::is_root() { "" } else { "sudo " };
        let dir =
            self.data_dir.as_deref().map(Path::display).map_or_else(String::new, |dir| format!(" --data-dir {dir}"));
        format!("{sudo}{} down --purge{dir}", self.ferry.display())
    }
}

/// Name and address of each running pod.
fn addresses(list: &Value) -> Result<Vec<(String, IpAddr)>> {
    let Some(pods) = list["items"].as_array() else { bail!("kubectl printed no list of pods") };
    let running = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"].get("deletionTimestamp").is_none());
    let address = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let ip = pod["status"]["podIP"].as_str().with_context(|| format!("pod {name} has no address"))?;
        Ok((name, ip.parse()?))
    };
    running.map(address).collect()
}

/// The first line of the answer.
fn fetch(address: IpAddr) -> Result<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&(address, 80).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    Ok(status.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_running_pods_are_asked() {
        let pod = |name: &str, phase: &str, ip: &str| json!({ "metadata": { "name": name }, "status": { "phase": phase, "podIP": ip } });
        let mut deleted = pod("deleted", "Running", "10.0.0.3");
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let list = json!({ "items": [pod("a", "Running", "10.0.0.1"), pod("b", "Pending", ""), deleted] });
        assert_eq!(addresses(&list).unwrap(), [("a".to_owned(), IpAddr::from([10, 0, 0, 1]))]);
    }
}
