//! The cluster's own containerd: installed if wished, configured to keep everything under the data directory, started in
//! a session of its own so that containers outlive ferry, and started again when it ends while ferry runs.

mod config;
pub mod install;
pub mod programs;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use runtime::{cri::CriClient, pause};
use sys::process::{ProcessHandle, has_capability, spawn_detached};
use tokio_util::sync::CancellationToken;

use crate::{atomic, instance::ClusterInstance, log, runtime_check};
use programs::{PATH, RuntimePrograms};

const CAP_SYS_RESOURCE: u32 = 24;
/// Time for a start.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval of connection attempts to a starting containerd.
const RETRY: Duration = Duration::from_millis(20);
/// The pause before one that ended is started again.
const RESTART: Duration = Duration::from_secs(1);

/// The cluster's own containerd.
pub struct Containerd {
    instance: ClusterInstance,
    programs: RuntimePrograms,
    /// The process, if this one started it.
    child: Option<Child>,
}

impl Containerd {
    /// Finds the programs that it needs; nothing runs yet.
    pub fn new(instance: &ClusterInstance) -> anyhow::Result<Self> {
        Ok(Self { instance: instance.clone(), programs: RuntimePrograms::find()?, child: None })
    }

    /// Makes sure that it runs with the current configuration; true if it did already.
    pub async fn ensure_running(&mut self) -> anyhow::Result<(CriClient, bool)> {
        let changed = self.write_config()?;
        if let Some(process) = process(&self.instance) {
            if !changed && let Ok(cri) = runtime_check::connect_cri(&self.instance.own_endpoint()).await {
                return Ok((cri, true));
            }
            process.terminate(Duration::from_secs(10)).context("cannot end the containerd that runs")?;
        }
        self.start_process().await.map(|cri| (cri, false))
    }

    /// Writes the configuration; true if that changed it.
    fn write_config(&self) -> anyhow::Result<bool> {
        let directory = self.instance.containerd();
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let restricted = !has_capability(CAP_SYS_RESOURCE).context("/proc/self/status")?;
        let text = config::render_config(&self.instance, &self.instance.cni_plugins(), restricted);
        let path = config::config_path(&self.instance);
        let changed = atomic::read_file(&path)?.is_none_or(|old| old != text);
        if changed {
            atomic::write_file(&path, text.as_bytes(), atomic::PUBLIC).with_context(|| path.display().to_string())?;
        }
        Ok(changed)
    }

    async fn start_process(&mut self) -> anyhow::Result<CriClient> {
        let path = self.instance.containerd().join("containerd.log");
        let log = File::options().create(true).append(true).open(&path).with_context(|| path.display().to_string())?;
        let from = log.metadata()?.len();
        let mut command = Command::new(&self.programs.containerd);
        command.arg("--config").arg(config::config_path(&self.instance)).env("PATH", PATH).current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawn_detached(&mut command).with_context(|| self.programs.containerd.display().to_string())?;
        let answered = answers(&self.instance.own_endpoint(), &mut child).await;
        self.child = Some(child);
        answered.map_err(|error| {
            let said = log::read_tail(&path, from, 5).unwrap_or_default();
            error.context(format!("containerd did not start; the end of {}:\n{said}", path.display()))
        })
    }

    /// Loads the pause image unless it is there.
    pub async fn load_pause(&self, cri: &CriClient) -> anyhow::Result<bool> {
        if cri.image_status(pause::PAUSE_IMAGE).await?.is_some() {
            return Ok(false);
        }
        let (programs, socket) = (self.programs.clone(), self.instance.containerd_socket());
        tokio::task::spawn_blocking(move || import(&programs, &socket, &pause::build_image_archive())).await??;
        let deadline = Instant::now() + PATIENCE;
        // CRI hears of an imported image through an event, a little later.
        while cri.image_status(pause::PAUSE_IMAGE).await?.is_none() {
            if Instant::now() > deadline {
                bail!("containerd imported the image {} but does not list it", pause::PAUSE_IMAGE);
            }
            tokio::time::sleep(RETRY).await;
        }
        Ok(true)
    }

    /// Tells the runtime of the mirror for images that were loaded by hand. It reads this at every pull.
    pub fn set_mirror(instance: &ClusterInstance, port: u16) -> anyhow::Result<()> {
        let directory = instance.registries().join("_default");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let path = directory.join("hosts.toml");
        let text = config::render_mirror(port);
        if atomic::read_file(&path)?.is_none_or(|old| old != text) {
            atomic::write_file(&path, text.as_bytes(), atomic::PUBLIC).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Starts it again whenever it ends, until `shutdown`. It keeps running afterwards.
    pub async fn run_supervised(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            let ended = async {
                match process(&self.instance) {
                    Some(process) => process.wait_for_exit().await,
                    None => Ok(()),
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                ended = ended => ended.context("cannot watch containerd")?,
            }
            let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            tracing::error!(?status, "containerd ended; it is started again");
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(RESTART) => {}
            }
            if let Err(error) = self.start_process().await {
                tracing::error!(error = format!("{error:#}"), "containerd cannot be started");
            }
        }
    }
}

async fn answers(endpoint: &str, child: &mut Child) -> anyhow::Result<CriClient> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match runtime_check::connect_cri(endpoint).await {
            Ok(cri) => return Ok(cri),
            Err(error) => error,
        };
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}");
        }
        if Instant::now() > deadline {
            return Err(error.context(format!("it does not answer within {} s", PATIENCE.as_secs())));
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn import(programs: &RuntimePrograms, socket: &Path, archive: &[u8]) -> anyhow::Result<()> {
    let mut command = Command::new(&programs.ctr);
    command.arg("--address").arg(socket).args(["--namespace", "k8s.io", "images", "import", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| programs.ctr.display().to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(archive).context("ctr images import")?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(anyhow!("ctr images import: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The running containerd of this cluster.
pub fn process(instance: &ClusterInstance) -> Option<ProcessHandle> {
    with_argument(&config::config_path(instance).to_string_lossy()).into_iter().next()
}

/// The shims of this cluster's containers.
pub fn shims(instance: &ClusterInstance) -> Vec<ProcessHandle> {
    let mut shims = with_argument(&instance.containerd_socket().to_string_lossy());
    shims.retain(|process| process.name().is_ok_and(|name| name.starts_with("containerd-shim")));
    shims
}

fn with_argument(argument: &str) -> Vec<ProcessHandle> {
    let mut processes = ProcessHandle::list_all().unwrap_or_default();
    processes.retain(|process| {
        let arguments = process.arguments().unwrap_or_default();
        arguments.first().is_some_and(|program| program.contains("containerd"))
            && arguments.iter().any(|one| one == argument)
    });
    processes
}
