//! Tests the CRI client and the pause image against a real containerd.
//!
//! The test reruns itself inside fresh network, mount and PID namespaces, so that it leaves nothing behind. It needs
//! root, containerd, runc, CNI's bridge and a static busybox; without them it prints a message and passes.

use std::{
    collections::HashMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::StreamExt;
use runtime::{
    cri::{CriClient, RuntimeEvent, types},
    pause,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use ferry_runtime as runtime;

const INSIDE: &str = "FERRY_TEST_INSIDE_NAMESPACES";
const CNI: &str = "/usr/lib/cni";
const IMAGE: &str = "ferry.local/busybox:1";

#[test]
fn pods_run_on_containerd() {
    if let Some(dir) = std::env::var_os(INSIDE) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(inside(dir.into()));
    }
    if let Some(reason) = missing() {
        return skip::skip_test(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["pods_run_on_containerd", "--exact", "--nocapture"])
        .env(INSIDE, dir.path())
        .status()
        .unwrap();
    remove_cgroups(&cgroup_of(dir.path()));
    assert!(status.success(), "{status}");
}

fn missing() -> Option<String> {
    if !std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        return Some("not root".into());
    }
    let found = |name: &str| {
        ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin", "/usr/local/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(name).exists())
    };
    let tool = ["containerd", "ctr", "runc", "busybox", "ip", "unshare"].into_iter().find(|name| !found(name));
    tool.map(|name| format!("{name} is not installed"))
        .or_else(|| (!Path::new(CNI).join("bridge").exists()).then(|| format!("no CNI plug-ins in {CNI}")))
}

/// A containerd instance of this test.
struct Containerd {
    dir: PathBuf,
    daemon: Child,
    cgroup: String,
}

/// Returns the cgroup of this test's containers, which outlives the namespaces.
fn cgroup_of(dir: &Path) -> String {
    format!("ferry-test-{}", dir.file_name().unwrap().display().to_string().replace('.', ""))
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Removes cgroups, deepest first; reports those still in use.
fn remove_cgroups(name: &str) {
    fn remove(dir: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
        if let Err(error) = std::fs::remove_dir(dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("{}: {error}", dir.display());
        }
    }
    remove(&Path::new("/sys/fs/cgroup").join(name));
    for controller in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        remove(&controller.path().join(name));
    }
}

impl Containerd {
    fn start(dir: PathBuf) -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        let path = |name: &str| dir.join(name).display().to_string();
        let config = format!(
            r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI}"
    conf_dir = "{cni}"
"#,
            root = path("root"),
            state = path("state"),
            socket = path("containerd.sock"),
            pause = pause::PAUSE_IMAGE,
            cni = path("cni"),
        );
        std::fs::write(path("config.toml"), config).unwrap();
        std::fs::create_dir(path("cni")).unwrap();
        let network = serde_json::json!({ "cniVersion": "0.4.0", "name": "test", "plugins": [{
            "type": "bridge", "bridge": "test0", "isGateway": true,
            "ipam": { "type": "host-local", "dataDir": path("ipam"), "ranges": [[{ "subnet": "10.234.0.0/24" }]] } }] });
        std::fs::write(path("cni/10-test.conflist"), network.to_string()).unwrap();
        let log = std::fs::File::create(path("containerd.log")).unwrap();
        let daemon = Command::new("containerd").args(["--config", &path("config.toml")]).stderr(log).spawn().unwrap();
        let cgroup = cgroup_of(&dir);
        Self { dir, daemon, cgroup }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.path("containerd.sock").display())
    }

    fn ctr(&self, arguments: &[&str]) {
        assert!(self.ctr_command(arguments).status().unwrap().success(), "ctr {arguments:?}");
    }

    fn ctr_command(&self, arguments: &[&str]) -> Command {
        let mut ctr = Command::new("ctr");
        ctr.args(["--address", &self.path("containerd.sock").display().to_string(), "-n", "k8s.io"]).args(arguments);
        ctr
    }

    fn import(&self, archive: &[u8]) {
        let mut ctr = self.ctr_command(&["images", "import", "-"]);
        let mut ctr = ctr.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        ctr.stdin.take().unwrap().write_all(archive).unwrap();
        assert!(ctr.wait().unwrap().success());
    }
}

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

/// Builds a docker archive with a static busybox.
fn busybox() -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let tar = |files: &[(&str, &[u8])]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            tar.append_data(&mut header, name, *content).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let program = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| std::fs::read(path).ok()).unwrap();
    let layer = tar(&[("bin/busybox", &program), ("bin/sh", &program)]);
    let digest: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    let config = serde_json::json!({ "architecture": "amd64", "os": "linux", "config": { "Cmd": ["/bin/sh"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] } });
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
    tar(&[
        ("layer.tar", &layer),
        ("config.json", config.to_string().as_bytes()),
        ("manifest.json", manifest.to_string().as_bytes()),
    ])
}

async fn connect(containerd: &Containerd) -> CriClient {
    let mut last = None;
    for _ in 0..200 {
        match CriClient::connect(&containerd.endpoint()).await {
            Ok(cri) => return cri,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let log = std::fs::read_to_string(containerd.path("containerd.log")).unwrap_or_default();
    panic!("containerd does not answer: {last:?}\n{log}");
}

fn sandbox_config(containerd: &Containerd) -> types::PodSandboxConfig {
    types::PodSandboxConfig {
        metadata: Some(types::PodSandboxMetadata {
            name: "pod".into(),
            uid: "uid-1".into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        hostname: "pod".into(),
        log_directory: containerd.path("logs").display().to_string(),
        labels: HashMap::from([("io.kubernetes.pod.uid".to_string(), "uid-1".to_string())]),
        linux: Some(types::LinuxPodSandboxConfig {
            cgroup_parent: format!("/{}", containerd.cgroup),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container_config(name: &str, command: &[&str]) -> types::ContainerConfig {
    types::ContainerConfig {
        metadata: Some(types::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(types::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: command.iter().map(|word| word.to_string()).collect(),
        log_path: format!("{name}.log"),
        labels: HashMap::from([("io.kubernetes.pod.uid".to_string(), "uid-1".to_string())]),
        linux: Some(Default::default()),
        ..Default::default()
    }
}

async fn inside(dir: PathBuf) {
    let containerd = Containerd::start(dir);
    let cri = connect(&containerd).await;
    assert_eq!(cri.fetch_version().await.unwrap().runtime_name, "containerd");
    containerd.import(&pause::build_image_archive());
    containerd.import(&busybox());
    assert!(cri.image_status(IMAGE).await.unwrap().is_some());
    assert!(cri.image_status("ferry.local/absent:1").await.unwrap().is_none());

    let (_wanted, receiver) = tokio::sync::watch::channel(true);
    let mut changes = cri.watch_events(receiver);
    let config = sandbox_config(&containerd);
    let sandbox = cri.run_sandbox(config.clone(), "").await.unwrap();
    let status = cri.sandbox_status(&sandbox).await.unwrap();
    assert!(status.network.unwrap().ip.starts_with("10.234.0."));

    let sleeper = container_config("main", &["/bin/busybox", "sleep", "1000"]);
    let container = cri.create_container(&sandbox, sleeper, config.clone()).await.unwrap();
    cri.start_container(&container).await.unwrap();
    assert!(cri.fetch_readiness().await.unwrap().network.is_none());

    commands(&cri, &container).await;
    death(&cri, &sandbox, config, &mut changes).await;
    containerd.ctr(&["tasks", "kill", "-s", "KILL", &sandbox]);
    sandbox_death(&cri, &sandbox, &mut changes).await;

    cri.stop_container(&container, Duration::ZERO).await.unwrap();
    cri.stop_sandbox(&sandbox).await.unwrap();
    cri.remove_sandbox(&sandbox).await.unwrap();
    cri.remove_sandbox(&sandbox).await.unwrap();
    assert!(cri.list_sandboxes(HashMap::new()).await.unwrap().is_empty());
    assert!(cri.list_containers(HashMap::new()).await.unwrap().is_empty());
    assert!(cri.container_status(&container).await.unwrap_err().is_not_found());
}

/// Checks output and exit code of a command, and the SPDY endpoint of a streaming exec.
async fn commands(cri: &CriClient, container: &str) {
    let script = "echo done; echo oops >&2; exit 3";
    let command = ["/bin/sh", "-c", script].map(String::from);
    let answer = cri.exec_sync(container, command.clone().into(), Duration::from_secs(5)).await.unwrap();
    assert_eq!((answer.stdout.as_slice(), answer.stderr.as_slice()), (&b"done\n"[..], &b"oops\n"[..]));
    assert_eq!(answer.exit_code, 3);
    let container_id = container.to_owned();
    let request = types::ExecRequest { container_id, cmd: command.into(), stdout: true, ..Default::default() };
    let url = cri.prepare_exec(request).await.unwrap();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let ask = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
}

/// Checks that a container exit is reported.
async fn death(
    cri: &CriClient,
    sandbox: &str,
    config: types::PodSandboxConfig,
    changes: &mut (impl futures::Stream<Item = RuntimeEvent> + Unpin),
) {
    let short = container_config("short", &["/bin/busybox", "sh", "-c", "exit 7"]);
    let container = cri.create_container(sandbox, short, config).await.unwrap();
    cri.start_container(&container).await.unwrap();
    loop {
        let change = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change").unwrap();
        let status = cri.container_status(&container).await.unwrap();
        if change == RuntimeEvent::PodChanged("uid-1".into())
            && status.state == types::ContainerState::ContainerExited as i32
        {
            return assert_eq!(status.exit_code, 7);
        }
    }
}

/// Checks that a killed sandbox is reported after CRI shows it as not ready.
async fn sandbox_death(
    cri: &CriClient,
    sandbox: &str,
    changes: &mut (impl futures::Stream<Item = RuntimeEvent> + Unpin),
) {
    loop {
        let change = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change").unwrap();
        let state = cri.sandbox_status(sandbox).await.unwrap().state;
        if change == RuntimeEvent::PodChanged("uid-1".into()) && state == types::PodSandboxState::SandboxNotready as i32
        {
            return;
        }
    }
}
