//! The machine: required programs, built binaries, and a snapshot of everything that a cluster could leave behind.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::run_command;

/// Programs that tests with containers start.
const PROGRAMS: &[&str] = &["kubectl", "containerd", "ctr", "runc", "curl", "nft", "ip", "nsenter", "mmdebstrap"];

/// Parts of names of test clusters' namespaces, directories and cgroups.
const MARKS: &[&str] = &["ferry-test-", "/tmp/ft", "/ferry-"];

/// Whether clusters use ferry's own container runtime: the default; `FERRY_TEST_RUNTIME=containerd` chooses containerd.
pub fn tests_own_runtime() -> bool {
    std::env::var_os("FERRY_TEST_RUNTIME").is_none_or(|name| name == "ferry")
}

/// The flag of `ferry up` and `ferry join` that chooses the container runtime of the tests.
pub fn runtime_flag() -> &'static str {
    if tests_own_runtime() { "--container-runtime=ferry" } else { "--install-runtime" }
}

/// The processes of a container, by the control groups that every runtime names after it. The ID may have a scheme.
pub fn container_processes(id: &str) -> BTreeSet<u32> {
    let id = id.rsplit('/').next().unwrap_or(id);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(id)))
        .collect()
}

/// The first missing requirement of tests with containers.
pub fn missing_requirement() -> Option<String> {
    if run_command(Command::new("id").arg("-u"), None).stdout.trim() != "0" {
        return Some("tests with containers need root".to_owned());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &&&str| !std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.iter().filter(found).copied().collect();
    (!missing.is_empty()).then(|| format!("{} not installed; `cargo xtask test` installs it", missing.join(", ")))
}

/// A program that cargo has built beside this test.
pub fn built_program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps").join(name);
    assert!(path.is_file(), "{} is not there: build it with `cargo build -p {name}`", path.display());
    path
}

/// A folder in the user's cache for things that take long to make.
pub fn cache_dir(name: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_else(std::env::temp_dir);
    base.join("ferry").join(name)
}

/// Everything that outlives a process: what a cluster must not leave behind.
#[derive(Debug, PartialEq, Eq)]
pub struct MachineSnapshot {
    /// Processes of clusters, with their command lines.
    pub processes: BTreeSet<String>,
    /// Mount points.
    pub mounts: BTreeSet<String>,
    /// Network links, and addresses, of the namespace.
    pub links: BTreeSet<String>,
    /// Netfilter rules of the namespace.
    pub rules: BTreeSet<String>,
    /// Control groups.
    pub cgroups: BTreeSet<String>,
    /// Named network namespaces.
    pub namespaces: BTreeSet<String>,
    /// `net.ipv4.ip_forward` of the namespace.
    pub forwarding: String,
}

impl MachineSnapshot {
    /// Takes one, as seen from the network namespace `netns`.
    pub fn take(netns: &str) -> Self {
        let inside = |program: &str, args: &[&str]| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{netns}")).arg(program).args(args);
            lines(&run_command(&mut command, None).expect_success())
        };
        Self {
            processes: processes(netns),
            mounts: lines(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
                .into_iter()
                .filter_map(|line| line.split(' ').nth(4).map(str::to_owned))
                .collect(),
            links: inside("ip", &["-o", "addr"])
                .iter()
                .chain(&inside("ip", &["-o", "link"]))
                .map(|l| steady(l))
                .collect(),
            rules: inside("nft", &["list", "ruleset"]),
            cgroups: cgroups(Path::new("/sys/fs/cgroup")),
            namespaces: lines(&run_command(Command::new("ip").args(["netns", "list"]), None).stdout),
            forwarding: inside("cat", &["/proc/sys/net/ipv4/ip_forward"]).into_iter().collect(),
        }
    }

    /// Entries that are not in `before`, one line each. `ours` are the marks of the cluster: its network
    /// namespace, its directory, its name; whatever bears the marks of another test's cluster is left out.
    pub fn new_since(&self, before: &Self, ours: &[&str]) -> Vec<String> {
        let foreign =
            |entry: &str| MARKS.iter().any(|mark| entry.contains(mark)) && !ours.iter().any(|our| entry.contains(our));
        let parts = [
            ("process", &self.processes, &before.processes),
            ("mount", &self.mounts, &before.mounts),
            ("link", &self.links, &before.links),
            ("rule", &self.rules, &before.rules),
            ("cgroup", &self.cgroups, &before.cgroups),
            ("namespace", &self.namespaces, &before.namespaces),
        ];
        let mut out: Vec<String> = parts
            .iter()
            .flat_map(|(what, now, then)| now.difference(then).map(move |entry| format!("{what}: {entry}")))
            .filter(|entry| !foreign(entry))
            .collect();
        if self.forwarding != before.forwarding {
            out.push(format!("ip_forward: {}", self.forwarding));
        }
        out
    }
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A line of `ip` without what changes by itself: link numbers and the operational state.
fn steady(line: &str) -> String {
    line.split_whitespace().skip(1).take(4).collect::<Vec<_>>().join(" ")
}

/// The processes of clusters: in the host's network, in a control group of Ferry's, or started for a data directory of a
/// test. Whatever else starts on the machine meanwhile is not a cluster's.
fn processes(netns: &str) -> BTreeSet<String> {
    let network = fs::metadata(format!("/run/netns/{netns}")).map(|file| file.ino()).ok();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let group = groups.lines().find_map(|line| line.split_once(":/ferry")).map(|(_, rest)| format!("/ferry{rest}"));
        let inside = fs::metadata(format!("/proc/{pid}/ns/net")).map(|file| file.ino()).ok() == network;
        let ours = group.is_some() || inside || text.contains("/tmp/ft");
        (ours && !text.is_empty()).then(|| format!("{pid} {text} {}", group.unwrap_or_default()))
    };
    pids.filter_map(line).collect()
}

fn cgroups(dir: &Path) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            out.extend(cgroups(&entry.path()));
            out.insert(entry.path().display().to_string());
        }
    }
    out
}
