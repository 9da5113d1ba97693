//! `cargo xtask upstream`: builds programs of upstream Kubernetes and etcd from their Go modules, to compare with.
//!
//! They land in `${XDG_CACHE_HOME:-~/.cache}/ferry/upstream` and are built once per version.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    cache,
    process::{self, command, output, step},
};

/// The versions that Ferry is compared with.
const KUBERNETES: &str = "v1.36.4";
const STAGING: &str = "v0.36.4";
const ETCD: &str = "v3.6.8";

/// Build upstream programs into the cache and print where they are
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which programs: `etcd`, `etcd-benchmark`, or a command of Kubernetes such as `kube-apiserver`
    #[arg(required = true)]
    programs: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    for program in &args.programs {
        println!("{}", ensure(program)?.display());
    }
    Ok(())
}

/// The path of a program, built if it is not there.
fn ensure(program: &str) -> Result<PathBuf> {
    let known = program.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    if !known {
        bail!("{program:?} is no name of a program");
    }
    let etcd_package = match program {
        "etcd" => Some("go.etcd.io/etcd/server/v3"),
        "etcd-benchmark" => Some("go.etcd.io/etcd/v3/tools/benchmark"),
        _ => None,
    };
    let version = if etcd_package.is_some() { ETCD } else { KUBERNETES };
    let cache = cache("upstream")?;
    let path = cache.join(format!("{program}-{version}"));
    if path.is_file() {
        return Ok(path);
    }
    let module = cache.join(format!("module-{program}"));
    fs::create_dir_all(&module)?;
    step(&format!("build {program} {version}"), || {
        let package = match etcd_package {
            Some(package) => etcd(&module, package)?,
            None => kubernetes(&module, program)?,
        };
        go(&module, "mod tidy")?;
        let built = module.join("built");
        go(&module, &format!("build -o {} {package}", built.display()))?;
        fs::rename(&built, &path).context("cannot move the program into place")
    })?;
    Ok(path)
}

fn go(module: &Path, arguments: &str) -> Result<()> {
    process::run(
        command(&format!("go {arguments}")).current_dir(module).env("GOFLAGS", "-mod=mod").env("CGO_ENABLED", "0"),
    )
}

/// A module that needs Kubernetes with its staging modules at their published versions; returns the package to build.
fn kubernetes(module: &Path, program: &str) -> Result<String> {
    let download = format!("go mod download -json k8s.io/kubernetes@{KUBERNETES}");
    let found: Value = serde_json::from_str(&output(command(&download).current_dir(module).env("GO111MODULE", "on"))?)?;
    let dir = found["Dir"].as_str().context("go does not tell where the module is")?;
    let text = fs::read_to_string(Path::new(dir).join("go.mod"))?;
    let staged = text.lines().filter(|line| line.contains("=> ./staging"));
    let names = staged.filter_map(|line| line.trim().trim_start_matches("replace ").split_whitespace().next());
    let replaced: String = names.map(|name| format!("replace {name} => {name} {STAGING}\n")).collect();
    let package = format!("k8s.io/kubernetes/cmd/{program}");
    write(module, &format!("require k8s.io/kubernetes {KUBERNETES}\n{replaced}"), &package)?;
    Ok(package)
}

fn etcd(module: &Path, package: &str) -> Result<String> {
    // The server is a module of its own; the tools are in that of the whole.
    let needed = package.strip_suffix("/tools/benchmark").unwrap_or(package);
    write(module, &format!("require {needed} {ETCD}\n"), package)?;
    Ok(package.to_owned())
}

fn write(module: &Path, requirements: &str, package: &str) -> Result<()> {
    fs::write(module.join("go.mod"), format!("module upstream\n\ngo 1.26.0\n\n{requirements}"))?;
    let tools = format!("//go:build tools\n\npackage main\n\nimport _ \"{package}\"\n");
    fs::write(module.join("tools.go"), tools).context("cannot write the module")
}
