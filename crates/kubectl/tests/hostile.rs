//! Broken answers over HTTP: a loopback server answers commands with truncated, wrong-typed, huge, badly framed and endless
//! bodies. No command panics, hangs or takes more than 192 MiB. `FERRY_FUZZ` sets the number of commands.

mod hostile_server;

use std::{
    panic,
    sync::{Mutex, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use hostile_server::HostileServer;
use peak_alloc::PeakAlloc;

const COMMANDS: u64 = 620;
const MAX_MEMORY: usize = 192 << 20;
/// Every request of a command is limited to a fraction of this.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Tracks current and peak allocation.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Command lines; `FILE` is a manifest.
const LINES: [&str; 62] = [
    "get pods",
    "get pods -A -o wide --sort-by=.metadata.name",
    "get pods -o yaml",
    "get pods -o custom-columns=A:.metadata.name,B:.spec.containers[*].image",
    "get pods,deployments -o name -l app=a",
    "get pod p -o json",
    "get pods -w",
    "get pods -w -o json --output-watch-events",
    "get deployment d -L app --show-labels",
    "get pods --chunk-size=1",
    "get --raw /api/v1/namespaces/default/pods",
    "describe pod p",
    "describe pods",
    "describe deployment d",
    "describe node n",
    "describe service s",
    "describe namespace default",
    "logs p",
    "logs -f p --pod-running-timeout=20ms",
    "logs deployment/d --pod-running-timeout=20ms",
    "logs -l app=a --all-containers --prefix",
    "explain pods.spec.containers",
    "explain pods --recursive",
    "explain pods --output=plaintext-openapiv2",
    "apply -f FILE",
    "apply --server-side -f FILE",
    "apply -f FILE --dry-run=server -o yaml",
    "create -f FILE",
    "replace -f FILE",
    "delete -f FILE --timeout=20ms",
    "delete pod p --force --timeout=20ms",
    "patch pod p -p {\"metadata\":{\"labels\":{\"a\":\"b\"}}}",
    "label pod p a=b",
    "scale deployment d --replicas=2 --timeout=20ms",
    "set image deployment/d c=i:2",
    "wait --for=condition=Ready pod/p --timeout=20ms",
    "wait --for=delete pod/p --timeout=20ms",
    "rollout status deployment/d --timeout=20ms",
    "rollout history deployment/d",
    "rollout undo deployment/d",
    "top pods --containers",
    "top node",
    "events --for pod/p",
    "auth can-i --list",
    "api-resources",
    "api-resources -o json",
    "api-resources -o wide --sort-by=kind",
    "api-versions",
    "version",
    "get all --show-kind",
    "get pods -o jsonpath={.items[*].metadata.name}",
    "describe all",
    "diff -f FILE",
    "expose deployment d --port=80 --dry-run=client -o yaml",
    "autoscale deployment d --max=3",
    "edit pod p",
    "drain n --timeout=20ms",
    "debug p --image=i",
    "attach p --pod-running-timeout=20ms",
    "cp p:/a /dev/null",
    "top pods --sum --show-swap -A",
    "exec p --pod-running-timeout=20ms -- true",
];

const MANIFEST: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]}}"#;

/// The words of a command line for a server.
fn arguments(line: &str, server: &HostileServer, manifest: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split(' ').map(|word| word.replace("FILE", manifest)).collect();
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let global = [
        format!("--server=http://127.0.0.1:{}", server.port),
        "--kubeconfig=/dev/null".to_owned(),
        "--cache-dir=/dev/null".to_owned(),
        "--request-timeout=20ms".to_owned(),
    ];
    words.splice(at..at, global);
    words
}

/// Runs commands one after the other; their numbers and lines go to the channel before they run, their memory after it.
fn run_commands(commands: u64, server: &HostileServer, manifest: &str, progress: &mpsc::Sender<Progress>) {
    for number in first_command()..commands {
        let line = LINES[(number % LINES.len() as u64) as usize];
        server.seed.store(number, Ordering::SeqCst);
        let started = Progress { number, line, memory: None };
        progress.send(started).expect("the test waits for it");
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        // A panic is recorded by the hook.
        let _ = panic::catch_unwind(|| kubectl::run_command(&arguments(line, server, manifest)));
        let memory = Some(ALLOCATOR.peak_usage().saturating_sub(before));
        progress.send(Progress { number, line, memory }).expect("the test waits for it");
    }
}

/// `FERRY_FUZZ_FIRST` repeats a run from one of its commands.
fn first_command() -> u64 {
    std::env::var("FERRY_FUZZ_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

struct Progress {
    number: u64,
    line: &'static str,
    /// The peak, when the command has ended.
    memory: Option<usize>,
}

#[test]
fn broken_answers_end_in_an_error() {
    let commands = std::env::var("FERRY_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(COMMANDS);
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = directory.path().join("manifest.json");
    std::fs::write(&manifest, MANIFEST).expect("a file");
    let manifest = manifest.display().to_string();
    panic::set_hook(Box::new(|info| *PANIC.lock().expect("no panic while it is held") = Some(info.to_string())));
    let (sender, receiver) = mpsc::channel();
    // Commands write to the descriptors themselves.
    let quiet = QuietOutput::start();
    let worker = thread::Builder::new().stack_size(8 << 20);
    let worker = worker
        .spawn(move || run_commands(commands, HostileServer::start(), &manifest, &sender))
        .expect("a thread starts");
    let mut last = (0, "");
    let mut most = 0;
    let failure = loop {
        match receiver.recv_timeout(MAX_TIME) {
            Ok(Progress { number, line, memory }) => {
                last = (number, line);
                most = most.max(memory.unwrap_or(0));
                let panicked = PANIC.lock().expect("no panic while it is held").take();
                if let Some(message) = panicked {
                    break Some(format!("panicked: {message}"));
                }
                if let Some(memory) = memory.filter(|memory| *memory > MAX_MEMORY) {
                    break Some(format!("took {memory} bytes"));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => break Some(format!("did not end within {MAX_TIME:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
        }
    };
    drop(quiet);
    drop(panic::take_hook());
    let (number, line) = last;
    assert!(failure.is_none(), "command {number}, kubectl {line}: {}", failure.unwrap_or_default());
    worker.join().expect("the commands ran");
    eprintln!("{commands} commands, at most {} MiB", most >> 20);
}

/// Sends stdout and stderr of the process to `/dev/null` until it is dropped.
struct QuietOutput([std::os::fd::OwnedFd; 2]);

impl QuietOutput {
    fn start() -> Self {
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("it can be opened");
        let kept = [rustix::io::dup(rustix::stdio::stdout()), rustix::io::dup(rustix::stdio::stderr())];
        rustix::stdio::dup2_stdout(&null).expect("a descriptor");
        rustix::stdio::dup2_stderr(&null).expect("a descriptor");
        Self(kept.map(|file| file.expect("a descriptor")))
    }
}

impl Drop for QuietOutput {
    fn drop(&mut self) {
        rustix::stdio::dup2_stdout(&self.0[0]).expect("a descriptor");
        rustix::stdio::dup2_stderr(&self.0[1]).expect("a descriptor");
    }
}
