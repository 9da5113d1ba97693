//! The API server that is asked: the shipped one, or upstream's where its answers are recorded.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use ferry_tests::{CommandOutput, TestApiServer, run_command};

/// Concurrent kubectl processes.
const WORKERS: usize = 4;

/// An API server.
pub struct DefinitionsTest {
    server: TestApiServer,
    /// The kubeconfig of another server that is asked instead.
    upstream: Option<PathBuf>,
}

impl DefinitionsTest {
    pub fn start() -> Self {
        let upstream = env::var_os("FERRY_RECORD_DEFINITIONS").map(PathBuf::from);
        Self { server: TestApiServer::start(), upstream }
    }

    pub fn is_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    fn prepared(&self, arguments: &[&str]) -> Command {
        let mut command = self.server.prepared("kubectl", arguments);
        if let Some(kubeconfig) = &self.upstream {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }

    pub fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> CommandOutput {
        run_command(&mut self.prepared(arguments), input)
    }

    /// Passes on kubectl's output line by line, until it ends or the callback stops it.
    pub fn stream(&self, arguments: &[&str], mut is_enough: impl FnMut(&str) -> bool) {
        let mut child = self.prepared(arguments).stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        lines.map(|line| line.expect("text")).any(|line| is_enough(&line));
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Does something with each, several at once.
    pub fn each<T: Sync>(&self, all: &[T], work: impl Fn(&T) + Sync) {
        let rest = Mutex::new(all.iter());
        let next = || rest.lock().expect("nobody panics with it").next();
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(one) = next() {
                        work(one);
                    }
                });
            }
        });
    }

    /// Compares with what upstream said, or keeps what it says now.
    pub fn compare(&self, recorded: &str, told: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/definitions").join(recorded);
        if self.is_upstream() {
            fs::write(path, told).expect("written");
            return;
        }
        let wanted = fs::read_to_string(path).expect("a recording");
        let missing: Vec<&str> = wanted.lines().filter(|line| !told.lines().any(|other| other == *line)).collect();
        let added: Vec<&str> = told.lines().filter(|line| !wanted.lines().any(|other| other == *line)).collect();
        assert!(told == wanted, "{recorded}: upstream says\n{}\nnot\n{}", missing.join("\n"), added.join("\n"));
    }
}
