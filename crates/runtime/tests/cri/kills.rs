//! The runtime in this crate is killed at random points, and so are supervisors: no container runs twice, and in the end
//! nothing is left. `FERRY_KILLS` is the number of kills, `FERRY_KILLS_SEED` repeats a run.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use ferry_runtime::{
    LAUNCHER_NAME,
    cri::{CriClient, types::ContainerState},
};
use tokio::sync::watch;

use crate::subject::{Subject, TestPod, cgroup_of, connect, container};

/// Kills in an ordinary run.
const KILLS: u64 = 25;

/// State of the machine before the first pod.
struct MachineBefore {
    processes: Vec<u32>,
    layers: Vec<String>,
}

/// A small generator of random numbers.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Kills a server that is a process of its own again and again while pods come and go.
pub async fn check_all(directory: &Path) {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = setting("FERRY_KILLS_SEED", u64::from(clock.subsec_nanos()));
    println!("kills: seed {seed}");
    let mut random = RandomNumbers(seed);
    let before = MachineBefore { processes: processes().into_iter().map(|(pid, _)| pid).collect(), layers: Vec::new() };
    let subject = Subject::start_process(directory).await;
    let before = MachineBefore { layers: entries(&directory.join("root/images/layers")), ..before };
    let (stop, stopped) = watch::channel(false);
    let busy: Vec<_> = (0..3).map(|worker| tokio::spawn(live(directory.to_owned(), worker, stopped.clone()))).collect();
    let mut server = subject.daemon.unwrap();
    for kill in 0..setting("FERRY_KILLS", KILLS) {
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        if kill % 3 == 2 {
            kill_supervisor(&mut random);
            continue;
        }
        server.kill().unwrap();
        server.wait().unwrap();
        server = serve(directory);
    }
    stop.send(true).unwrap();
    for task in busy {
        task.await.unwrap();
    }
    let cri = connect(&endpoint(directory)).await;
    for sandbox in cri.list_sandboxes(HashMap::new()).await.unwrap() {
        cri.stop_sandbox(&sandbox.id).await.unwrap();
        cri.remove_sandbox(&sandbox.id).await.unwrap();
    }
    check_nothing_left(directory, &before).await;
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Starts the server as a process.
pub fn serve(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap()).arg("serve").arg(directory).spawn().unwrap()
}

pub fn endpoint(directory: &Path) -> String {
    format!("unix://{}", directory.join("cri.sock").display())
}

/// Pods of one client: what fails is tried with a new pod, as a kubelet would.
async fn live(directory: PathBuf, worker: usize, stopped: watch::Receiver<bool>) {
    for number in 0.. {
        if *stopped.borrow() {
            return;
        }
        // Errors are expected: the server was killed.
        if live_once(&directory, &format!("kill-{worker}-{number}")).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn live_once(directory: &Path, name: &str) -> Option<()> {
    let cri = CriClient::connect(&endpoint(directory)).await.ok()?;
    let config = Subject::pod_config_in(directory, name);
    fs::create_dir_all(&config.log_directory).unwrap();
    let pod = TestPod { id: cri.run_sandbox(config.clone(), "").await.ok()?, config };
    let runs = directory.join("runs").join(name);
    fs::create_dir_all(&runs).unwrap();
    let mut main = container("main", "echo > /runs/$$.$(cat /proc/sys/kernel/random/uuid); exit 5");
    main.mounts = vec![ferry_runtime::cri::types::Mount {
        container_path: "/runs".into(),
        host_path: runs.display().to_string(),
        ..Default::default()
    }];
    let id = cri.create_container(&pod.id, main, pod.config.clone()).await.ok()?;
    let started = cri.start_container(&id).await;
    let mut status = cri.container_status(&id).await.ok()?;
    for _ in 0..100 {
        if status.state == ContainerState::ContainerExited as i32 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        status = cri.container_status(&id).await.ok()?;
    }
    let count = entries(&runs).len();
    assert!(count <= 1, "{name} ran {count} times");
    if started.is_ok() && status.state == ContainerState::ContainerExited as i32 {
        // 5, or 255 if its supervisor was killed before it could tell.
        assert!([5, 137, 255].contains(&status.exit_code), "{name}: {}", status.exit_code);
    }
    cri.stop_sandbox(&pod.id).await.ok()?;
    cri.remove_sandbox(&pod.id).await.ok()
}

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect();
    names.sort();
    names
}

/// Processes of this namespace by id: all but this one and those that have ended.
fn processes() -> Vec<(u32, String)> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        (pid != std::process::id() && !text.is_empty()).then_some((pid, text))
    };
    pids.filter_map(line).collect()
}

/// Kills a supervisor or the launcher.
fn kill_supervisor(random: &mut RandomNumbers) {
    let all: Vec<u32> =
        processes().into_iter().filter(|(_, line)| line.starts_with(LAUNCHER_NAME)).map(|(pid, _)| pid).collect();
    if let Some(pid) = all.get(random.below(all.len().max(1) as u64) as usize)
        && let Some(pid) = rustix::process::Pid::from_raw(*pid as i32)
    {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

async fn check_nothing_left(directory: &Path, before: &MachineBefore) {
    let mut left = Vec::new();
    for _ in 0..100 {
        left = leftovers(directory, before);
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("left: {left:#?}");
}

fn leftovers(directory: &Path, before: &MachineBefore) -> Vec<String> {
    let mut left: Vec<String> = ["sandboxes", "containers", "run", "images/ingest", "cni-results"]
        .iter()
        .flat_map(|name| entries(&directory.join("root").join(name)))
        .collect();
    left.extend(
        entries(&directory.join("root/images/layers")).into_iter().filter(|layer| !before.layers.contains(layer)),
    );
    let is_address = |path: &String| path.rsplit('/').next().is_some_and(|name| name.starts_with("10."));
    left.extend(entries(&directory.join("ipam/test")).into_iter().filter(is_address));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let below = directory.display().to_string();
    left.extend(mounts.lines().filter(|line| line.contains(&below)).map(str::to_owned));
    let is_server = |line: &str| line.contains(" serve ");
    let mut launchers = 0;
    let is_new = |pid: u32, line: &str| !before.processes.contains(&pid) && !is_server(line);
    for (pid, line) in processes().into_iter().filter(|(pid, line)| is_new(*pid, line)) {
        // The server has one launcher.
        launchers += usize::from(line.starts_with(LAUNCHER_NAME));
        if !line.starts_with(LAUNCHER_NAME) || launchers > 1 {
            left.push(format!("process {pid} {line}"));
        }
    }
    let group = cgroup_of(directory);
    for hierarchy in entries(Path::new("/sys/fs/cgroup")) {
        let inner = entries(&Path::new(&hierarchy).join(&group));
        left.extend(inner.into_iter().filter(|path| Path::new(path).is_dir()));
    }
    left
}
