//! The bare root file system: made of Debian packages once, kept as an archive in the user's cache.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{
    cache_dir,
    process::{self, step},
};

const SUITE: &str = "bookworm";
/// Beside the toolchain: `make` for build scripts, the rest for what containers need of a kernel.
const PACKAGES: &str = "ca-certificates,git,gcc,libc6-dev,make,iproute2,procps,kmod";
const SOURCES: &[&str] = &["/etc/apt/sources.list", "/etc/apt/sources.list.d"];
const CONFIGURATION: &[&str] = &["/etc/apt/apt.conf", "/etc/apt/apt.conf.d"];

/// The archive for the machine's present apt configuration; made if it is not there.
pub fn base_archive() -> Result<PathBuf> {
    let (sources, configuration) = (apt_sources(), apt_configuration());
    let mut hash = Sha256::new();
    hash.update(PACKAGES);
    for file in sources.iter().chain(&configuration) {
        hash.update(fs::read(file).with_context(|| file.display().to_string())?);
    }
    let digest = hash.finalize()[..6].iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    let path = cache_dir("fresh")?.join(format!("{SUITE}-{digest}.tar"));
    if !path.exists() {
        step("make the root file system", || make_archive(&path, &sources, &configuration))?;
    }
    Ok(path)
}

/// Builds under another name first, so that a file under the final name is always whole.
fn make_archive(path: &Path, sources: &[PathBuf], configuration: &[PathBuf]) -> Result<()> {
    let unfinished = path.with_extension(format!("{}.tar", std::process::id()));
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase"]).arg(format!("--include={PACKAGES}"));
    for file in configuration {
        command.arg(format!("--aptopt={}", file.display()));
    }
    process::run(command.arg(SUITE).arg(&unfinished).args(sources))?;
    fs::rename(&unfinished, path).context("cannot move the archive into place")
}

/// Unpacks the archive and adds what a machine has of its network: resolver, hosts, certificates, Python's package index.
pub fn unpack_archive(archive: &Path, root: &Path) -> Result<()> {
    process::run(Command::new("tar").arg("-C").arg(root).arg("-xf").arg(archive))?;
    for file in ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"].map(Path::new) {
        if let Ok(text) = fs::read(file) {
            let copy = path_inside(root, file);
            fs::write(&copy, text).with_context(|| copy.display().to_string())?;
        }
    }
    for folder in ["/etc/ssl/certs", "/usr/local/share/ca-certificates"].map(Path::new) {
        if folder.is_dir() {
            let mut copy = Command::new("cp");
            // Links on both sides lead to absolute paths: files are copied, and put in the place of links.
            copy.args(["--recursive", "--dereference", "--remove-destination"]).arg(folder.join("."));
            process::run(copy.arg(path_inside(root, folder)))?;
        }
    }
    Ok(())
}

/// The place of an absolute path in the root file system.
pub fn path_inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Files with sources of Debian itself; those of other suppliers have no place in a bare system.
fn apt_sources() -> Vec<PathBuf> {
    list_files(SOURCES)
        .into_iter()
        .filter(|path| {
            let is_source = path.extension().is_some_and(|extension| extension == "list" || extension == "sources");
            is_source && fs::read_to_string(path).is_ok_and(|text| text.contains(SUITE))
        })
        .collect()
}

/// Files that say how packages are fetched.
fn apt_configuration() -> Vec<PathBuf> {
    let fetches = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains("Acquire::"));
    list_files(CONFIGURATION).into_iter().filter(fetches).collect()
}

/// The named files, and the files of the named folders, that exist.
fn list_files(paths: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths.iter().map(PathBuf::from) {
        match fs::read_dir(&path) {
            Ok(entries) => found.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) if path.is_file() => found.push(path),
            Err(_) => {}
        }
    }
    found.sort();
    found
}
