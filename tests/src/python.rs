//! The Python client of Kubernetes in a virtual environment of its own, outside of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{machine, run_command};

/// The version of the package `kubernetes`.
const VERSION: &str = "36.0.3";

/// A Python that has the client, made if it is not there; `None`, with a word, where it cannot be had.
pub fn ensure_client() -> Option<PathBuf> {
    if Command::new("python3").arg("--version").output().is_err() {
        skip::skip_test("python3 is not installed");
        return None;
    }
    let dir = machine::cache_dir(&format!("python-client-{VERSION}-{}", interpreter()));
    let python = dir.join("bin/python3");
    let whole = dir.join("whole");
    if whole.is_file() {
        return Some(python);
    }
    fs::create_dir_all(&dir).expect("the cache can be written");
    // Tests run side by side; one makes it, the others wait.
    let lock = fs::File::create(dir.with_extension("lock")).expect("the cache can be written");
    lock.lock().expect("a lock");
    if !whole.is_file() && !install(&dir, &python) {
        return None;
    }
    fs::write(&whole, VERSION).expect("the cache can be written");
    Some(python)
}

/// Identifies the interpreter, because a virtual environment links to it: the cache may serve several systems.
fn interpreter() -> String {
    let print = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])";
    let text = run_command(Command::new("python3").args(["-c", print]), None).expect_success();
    text.trim().trim_start_matches('/').replace(['/', ' '], "-")
}

fn install(dir: &Path, python: &Path) -> bool {
    let made = run_command(Command::new("python3").args(["-m", "venv"]).arg(dir), None);
    if made.code != 0 {
        let reason = format!("{}{}", made.stdout, made.stderr);
        skip::skip_test(format_args!("no virtual environment for Python can be made: {reason}"));
        return false;
    }
    let package = format!("kubernetes=={VERSION}");
    let installed = run_command(Command::new(python).args(["-m", "pip", "install", "--quiet", &package]), None);
    if installed.code != 0 {
        skip::skip_test(format_args!("the Python client cannot be installed: {}", installed.stderr));
    }
    installed.code == 0
}

/// A script of `tests/python-client`.
pub fn script_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python-client").join(name)
}
