//! Container runtimes behind CRI, tried alike: containerd and the one in this crate.
//!
//! Each runtime is started in network, mount and PID namespaces of its own, so that nothing is left behind, and goes through
//! two tables: what CRI promises (`promises`), and ways out of a container, none of which may lead out (`escapes`). The one in
//! this crate is killed again and again, too (`kills`). The binary has its own `main`, because the runtime starts it again
//! as its launcher.

mod escapes;
mod image;
mod kills;
mod promises;
mod subject;

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use subject::{RuntimeName, Subject};

const INSIDE: &str = "FERRY_TEST_CRI_INSIDE";

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ferry_runtime::LAUNCHER_NAME) {
        return ferry_runtime::run_launcher();
    }
    if let (Some("serve"), Some(directory)) = (std::env::args().nth(1).as_deref(), std::env::args_os().nth(2)) {
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        threads.block_on(async {
            let listener = subject::start_ferry(Path::new(&directory)).await;
            listener.serve(tokio_util::sync::CancellationToken::new()).await;
        });
        return ExitCode::SUCCESS;
    }
    if let Some(directory) = std::env::var_os(INSIDE) {
        let name = RuntimeName::parse(&std::env::args().nth(1).unwrap_or_default());
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        threads.block_on(try_runtime(name, Path::new(&directory)));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut failed = 0;
    for name in RuntimeName::ALL {
        if !filters.is_empty() && !filters.iter().any(|filter| name.as_str().contains(filter.as_str())) {
            continue;
        }
        match subject::missing(name) {
            Some(reason) => skip::skip_test(reason),
            None if !run_inside(name) => failed += 1,
            None => println!("test {} ... ok", name.as_str()),
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this binary again in namespaces of its own; false if it failed.
fn run_inside(name: RuntimeName) -> bool {
    let directory = tempfile::Builder::new().prefix("ft").tempdir_in("/tmp").unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .arg(name.as_str())
        .env(INSIDE, directory.path())
        .status()
        .unwrap();
    for path in [directory.path().to_owned(), directory.path().join("kills")] {
        subject::remove_cgroups(&subject::cgroup_of(&path));
    }
    if !status.success() {
        let log = std::fs::read_to_string(directory.path().join("runtime.log")).unwrap_or_default();
        eprintln!("test {} ... FAILED: {status}\n{log}", name.as_str());
    }
    status.success()
}

async fn try_runtime(name: RuntimeName, directory: &Path) {
    let subject = Subject::start(name, directory).await;
    promises::check_all(&subject).await;
    escapes::check_all(&subject).await;
    subject.check_empty().await;
    subject.stop();
    if name == RuntimeName::Ferry {
        let directory = directory.join("kills");
        std::fs::create_dir(&directory).unwrap();
        kills::check_all(&directory).await;
    }
}
