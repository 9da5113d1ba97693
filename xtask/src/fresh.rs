//! `cargo xtask fresh -- COMMAND`: runs a command on a clone of this repository in a bare Debian 12.
//!
//! The root file system has Rust, git and a C toolchain, and nothing else: whatever the project needs beyond that, the
//! command installs. It runs in mount and PID namespaces of its own; when it ends, every process that it left is killed.
//! Caches of the machine are mounted into it: downloaded crates, Go with its modules, and upstream programs that were built
//! before. Packages come from where the machine's own apt takes them.

mod namespace;
mod rootfs;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use self::namespace::{BindMount, RootNamespace};
use crate::{cache_dir, packages, process, process::step, repository};

/// The clone inside the root file system. `../shared` of the repository is beside it.
const CHECKOUT: &str = "/src/ferry";
const TARGET: &str = "/src/target";
const HOME: &str = "/root";

/// Variables that pass through: proxies, certificates and mirrors of the machine, and the switches of tests.
const VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "TERM",
    "CARGO_INCREMENTAL",
];
const VARIABLE_PREFIXES: &[&str] = &["FERRY_", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "GO", "PIP_"];

/// Run a command on a clone of HEAD in a bare Debian 12
#[derive(Debug, clap::Args)]
pub struct FreshArgs {
    /// Keep the checkout and the target directory here, so that the next run builds only what changed
    ///
    /// Default: both are new and removed afterwards.
    #[arg(long, value_name = "DIR", env = "FERRY_FRESH_WARM")]
    warm: Option<PathBuf>,

    /// Leave the root file system in place afterwards and print where it is
    #[arg(long)]
    keep: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs the command and fails if it fails.
pub fn run(args: &FreshArgs) -> Result<()> {
    ensure!(process::is_root(), "a root file system needs root: run `sudo -E cargo xtask fresh …`");
    let packages = [packages::MMDEBSTRAP, packages::UTIL_LINUX, packages::GIT];
    packages::ensure_installed(&packages)?;
    let base = rootfs::base_archive()?;
    let root = create_root_dir()?;
    let outcome = step("unpack the root file system", || rootfs::unpack_archive(&base, &root))
        .and_then(|()| prepare(args, &root))
        .and_then(|namespace| namespace.run(&args.command));
    if args.keep {
        println!("the root file system is {}", root.display());
    } else {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    outcome
}

fn create_root_dir() -> Result<PathBuf> {
    let root = cache_dir("fresh")?.join(format!("root-{}", std::process::id()));
    fs::create_dir(&root).with_context(|| root.display().to_string())?;
    Ok(root)
}

/// Clones the repository and collects what is mounted and which variables are set.
fn prepare(args: &FreshArgs, root: &Path) -> Result<RootNamespace> {
    let mut mounts = cache_mounts()?;
    let warm = args.warm.as_deref().map(std::path::absolute).transpose()?;
    let checkout = warm.as_ref().map_or_else(|| root.join(&CHECKOUT[1..]), |warm| warm.join("checkout"));
    step("clone", || clone_head(&checkout))?;
    let mut variables = passed_variables();
    if let Some(warm) = warm {
        let target = warm.join("target");
        fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
        mounts.push(BindMount::writable(checkout, CHECKOUT));
        mounts.push(BindMount::writable(target, TARGET));
        variables.push(("CARGO_TARGET_DIR".into(), TARGET.into()));
    }
    if let Some(shared) = repository().parent().map(|parent| parent.join("shared")).filter(|dir| dir.is_dir()) {
        mounts.push(BindMount::read_only(shared, "/src/shared"));
    }
    let mut path = format!("{HOME}/.cargo/bin");
    if let Some(go) = GoToolchain::find() {
        path += &format!(":{}/bin", go.root.display());
        mounts.extend(go.mounts()?);
    }
    path += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    variables.extend([("HOME".into(), HOME.into()), ("PATH".into(), path), ("LANG".into(), "C.UTF-8".into())]);
    Ok(RootNamespace { root: root.into(), mounts, variables, directory: CHECKOUT.into() })
}

/// The toolchain, downloaded crates, and what tests and tasks keep.
fn cache_mounts() -> Result<Vec<BindMount>> {
    let home = PathBuf::from(env::var_os("HOME").context("HOME is not set")?);
    let variable = |name: &str, default: &str| env::var_os(name).map_or_else(|| home.join(default), PathBuf::from);
    let (cargo, rustup) = (variable("CARGO_HOME", ".cargo"), variable("RUSTUP_HOME", ".rustup"));
    let mut mounts = vec![BindMount::writable(cache_dir("")?, format!("{HOME}/.cache/ferry"))];
    for folder in ["bin", "registry", "git"] {
        mounts.push(BindMount::writable(cargo.join(folder), format!("{HOME}/.cargo/{folder}")));
    }
    mounts.push(BindMount::writable(rustup, format!("{HOME}/.rustup")));
    mounts.push(BindMount::read_only(cargo.join("config.toml"), format!("{HOME}/.cargo/config.toml")));
    mounts.retain(|mount| mount.from.exists());
    if mounts.iter().all(|mount| mount.to != Path::new(HOME).join(".rustup")) {
        bail!("Rust must come from rustup: there is no {}", variable("RUSTUP_HOME", ".rustup").display());
    }
    Ok(mounts)
}

/// The machine's Go toolchain.
struct GoToolchain {
    root: PathBuf,
    module_cache: PathBuf,
    build_cache: PathBuf,
    /// The file of `go env -w`.
    env_file: PathBuf,
}

impl GoToolchain {
    fn find() -> Option<Self> {
        let text =
            process::output(Command::new("go").args(["env", "GOROOT", "GOMODCACHE", "GOCACHE", "GOENV"])).ok()?;
        let mut lines = text.lines().map(PathBuf::from);
        let (root, module_cache) = (lines.next()?, lines.next()?);
        Some(Self { root, module_cache, build_cache: lines.next()?, env_file: lines.next()? })
    }

    fn mounts(self) -> Result<Vec<BindMount>> {
        for cache in [&self.module_cache, &self.build_cache] {
            fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
        }
        let mut mounts = vec![
            BindMount::read_only(self.root.clone(), self.root),
            BindMount::writable(self.module_cache, format!("{HOME}/go/pkg/mod")),
            BindMount::writable(self.build_cache, format!("{HOME}/.cache/go-build")),
        ];
        if self.env_file.is_file() {
            mounts.push(BindMount::read_only(self.env_file, format!("{HOME}/.config/go/env")));
        }
        Ok(mounts)
    }
}

/// Puts HEAD of this repository into `checkout`. Files that did not change since the last time keep their times, by which
/// cargo decides what to build.
fn clone_head(checkout: &Path) -> Result<()> {
    let commit = process::output(Command::new("git").arg("-C").arg(repository()).args(["rev-parse", "HEAD"]))?;
    let status = process::output(Command::new("git").arg("-C").arg(repository()).args(["status", "--porcelain"]))?;
    if !status.is_empty() {
        println!("  uncommitted changes are not part of the clone");
    }
    if !checkout.join(".git").is_dir() {
        process::run(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).arg(repository()).arg(checkout))?;
    }
    let git = |arguments: &[&str]| process::run(Command::new("git").arg("-C").arg(checkout).args(arguments));
    let repository = repository().to_str().context("the repository's path is not UTF-8")?;
    git(&["fetch", "--quiet", repository, "HEAD"])?;
    git(&["checkout", "--quiet", "--force", "--detach", commit.trim()])?;
    git(&["clean", "--quiet", "-ffdx"])
}

fn passed_variables() -> Vec<(String, String)> {
    // These name folders of the machine; inside they have their default places.
    let local = ["GOROOT", "GOPATH", "GOMODCACHE", "GOCACHE", "GOENV", "FERRY_FRESH_WARM"];
    let is_passed = |name: &str| {
        let listed = VARIABLES.contains(&name) || VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        listed && !local.contains(&name)
    };
    env::vars().filter(|(name, _)| is_passed(name)).collect()
}
