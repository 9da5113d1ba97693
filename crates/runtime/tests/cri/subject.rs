//! A runtime that is tried, and what the checks do with it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use ferry_runtime::{
    cri::{CriClient, types::*},
    image_client::ImageClient,
    pause,
    server::{RuntimeListener, RuntimeOptions, start_runtime},
};
use tokio_util::sync::CancellationToken;

use crate::image::{ImageFiles, build_archive};

const CNI: &str = "/usr/lib/cni";
/// The image that most checks use.
pub const IMAGE: &str = "ferry.local/busybox:1";

/// A runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RuntimeName {
    /// Debian's containerd with runc.
    Containerd,
    /// The one in this crate.
    Ferry,
}

impl RuntimeName {
    pub const ALL: [Self; 2] = [Self::Containerd, Self::Ferry];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Ferry => "ferry",
        }
    }

    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|name| name.as_str() == text).expect("a runtime's name")
    }
}

/// The first thing that a runtime needs and the machine lacks.
pub fn missing(name: RuntimeName) -> Option<String> {
    if !fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0) {
        return Some("not root".into());
    }
    let programs: &[&str] = match name {
        RuntimeName::Containerd => &["containerd", "ctr", "runc", "busybox", "ip", "unshare"],
        RuntimeName::Ferry => &["busybox", "ip", "unshare"],
    };
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let is_found = |name: &str| directories.iter().any(|directory| Path::new(directory).join(name).exists());
    let program = programs.iter().find(|name| !is_found(name));
    program
        .map(|name| format!("{name} is not installed"))
        .or_else(|| (!Path::new(CNI).join("bridge").exists()).then(|| format!("no CNI plug-ins in {CNI}")))
}

/// The cgroup of a test's containers, which outlives the namespaces.
pub fn cgroup_of(directory: &Path) -> String {
    format!("ferry-test-cri{}", directory.display().to_string().replace('/', "-"))
}

/// Removes the cgroups of a test, deepest first; those in use stay.
pub fn remove_cgroups(name: &str) {
    fn remove(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
        // One that is in use is reported by the next test that looks for leftovers.
        let _ = fs::remove_dir(directory);
    }
    remove(&Path::new("/sys/fs/cgroup").join(name));
    for controller in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        remove(&controller.path().join(name));
    }
}

/// A runtime that runs, with a pod.
pub struct Subject {
    pub name: RuntimeName,
    pub directory: PathBuf,
    pub cri: CriClient,
    /// The runtime, if it is a process of its own.
    pub daemon: Option<Child>,
}

impl Subject {
    /// Starts a runtime and loads the image.
    pub async fn start(name: RuntimeName, directory: &Path) -> Self {
        prepare_network(directory);
        let daemon = match name {
            RuntimeName::Containerd => Some(start_containerd(directory)),
            RuntimeName::Ferry => {
                tokio::spawn(start_ferry(directory).await.serve(CancellationToken::new()));
                None
            }
        };
        Self::with_image(name, directory, daemon).await
    }

    /// Starts the runtime in this crate as a process, and loads the image.
    pub async fn start_process(directory: &Path) -> Self {
        prepare_network(directory);
        Self::with_image(RuntimeName::Ferry, directory, Some(crate::kills::serve(directory))).await
    }

    async fn with_image(name: RuntimeName, directory: &Path, daemon: Option<Child>) -> Self {
        let cri = connect(&crate::kills::endpoint(directory)).await;
        let subject = Self { name, directory: directory.to_owned(), cri, daemon };
        if name == RuntimeName::Containerd {
            subject.load(pause::build_image_archive()).await;
        }
        subject.load(build_archive(IMAGE, &ImageFiles { has_base: true, ..Default::default() })).await;
        subject
    }

    /// Loads the images of an archive.
    pub async fn load(&self, archive: Vec<u8>) {
        let socket = self.directory.join("cri.sock");
        if self.name == RuntimeName::Ferry {
            ImageClient::new(&socket).load(io::Cursor::new(archive), None).await.unwrap();
            return;
        }
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(&socket).args(["-n", "k8s.io", "images", "import", "-"]);
        let mut ctr = ctr.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        ctr.stdin.take().unwrap().write_all(&archive).unwrap();
        assert!(ctr.wait().unwrap().success());
    }

    /// The configuration of a pod.
    pub fn pod_config(&self, name: &str) -> PodSandboxConfig {
        Self::pod_config_in(&self.directory, name)
    }

    /// The configuration of a pod of the runtime in a directory.
    pub fn pod_config_in(directory: &Path, name: &str) -> PodSandboxConfig {
        let cgroup_parent = format!("/{}", cgroup_of(directory));
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: directory.join("logs").join(name).display().to_string(),
            labels: HashMap::from([("io.kubernetes.pod.uid".to_owned(), format!("uid-{name}"))]),
            linux: Some(LinuxPodSandboxConfig { cgroup_parent, ..Default::default() }),
            ..Default::default()
        }
    }

    /// Creates and starts a container in a pod; the error if it cannot.
    pub async fn run(&self, pod: &TestPod, config: ContainerConfig) -> Result<String, String> {
        let created = self.cri.create_container(&pod.id, config, pod.config.clone()).await;
        let id = created.map_err(|error| error.to_string())?;
        self.cri.start_container(&id).await.map_err(|error| error.to_string())?;
        Ok(id)
    }

    /// Runs a pod.
    pub async fn pod(&self, name: &str) -> TestPod {
        let config = self.pod_config(name);
        fs::create_dir_all(&config.log_directory).unwrap();
        TestPod { id: self.cri.run_sandbox(config.clone(), "").await.unwrap(), config }
    }

    /// Stops and removes a pod.
    pub async fn remove(&self, pod: TestPod) {
        self.cri.stop_sandbox(&pod.id).await.unwrap();
        self.cri.remove_sandbox(&pod.id).await.unwrap();
    }

    /// Output and exit code of a shell command in a container.
    pub async fn shell(&self, container: &str, script: &str) -> (String, i32) {
        let command = ["/bin/sh", "-c", script].map(String::from);
        let answer = self.cri.exec_sync(container, command.into(), Duration::from_secs(20)).await.unwrap();
        let text = [answer.stdout, answer.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), answer.exit_code)
    }

    /// Waits for the end of a container.
    pub async fn exit_of(&self, container: &str) -> ContainerStatus {
        for _ in 0..400 {
            let status = self.cri.container_status(container).await.unwrap();
            if status.state == ContainerState::ContainerExited as i32 {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("container {container} does not end");
    }

    /// Nothing runs any more.
    pub async fn check_empty(&self) {
        assert!(self.cri.list_sandboxes(HashMap::new()).await.unwrap().is_empty());
        assert!(self.cri.list_containers(HashMap::new()).await.unwrap().is_empty());
    }

    /// Ends the daemon; one in this process ends with it.
    pub fn stop(self) {
        if let Some(mut daemon) = self.daemon {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}

/// A pod of a check.
pub struct TestPod {
    pub id: String,
    pub config: PodSandboxConfig,
}

/// A container that runs a shell script.
pub fn container(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: ["/bin/sh", "-c", script].map(String::from).into(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                readonly_paths: ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"].map(String::from).into(),
                masked_paths: ["/proc/kcore", "/proc/keys", "/sys/firmware"].map(String::from).into(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn prepare_network(directory: &Path) {
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let path = |name: &str| directory.join(name);
    fs::create_dir(path("cni")).unwrap();
    let network = serde_json::json!({ "cniVersion": "0.4.0", "name": "test", "plugins": [{
        "type": "bridge", "bridge": "test0", "isGateway": true,
        "ipam": { "type": "host-local", "dataDir": path("ipam"), "ranges": [[{ "subnet": "10.235.0.0/24" }]] } }] });
    fs::write(path("cni/10-test.conflist"), network.to_string()).unwrap();
}

/// Starts the runtime in this crate, in this process.
pub async fn start_ferry(directory: &Path) -> RuntimeListener {
    let options = RuntimeOptions {
        root: directory.join("root"),
        socket: directory.join("cri.sock"),
        cni_config: directory.join("cni"),
        cni_plugins: vec![CNI.into()],
        registry_hosts: None,
    };
    fs::create_dir_all(&options.root).unwrap();
    start_runtime(options).await.unwrap()
}

fn start_containerd(directory: &Path) -> Child {
    let path = |name: &str| directory.join(name).display().to_string();
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
        socket = path("cri.sock"),
        pause = pause::PAUSE_IMAGE,
        cni = path("cni"),
    );
    fs::write(path("config.toml"), config).unwrap();
    let log = File::create(path("runtime.log")).unwrap();
    Command::new("containerd").args(["--config", &path("config.toml")]).stderr(log).spawn().unwrap()
}

/// Waits until a runtime answers.
pub async fn connect(endpoint: &str) -> CriClient {
    let mut last = None;
    for _ in 0..200 {
        match CriClient::connect(endpoint).await {
            Ok(cri) if cri.fetch_version().await.is_ok() => return cri,
            Ok(_) => {}
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the runtime does not answer: {last:?}");
}
