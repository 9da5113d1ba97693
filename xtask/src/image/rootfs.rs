//! A root file system with nginx, built from Debian's packages once and kept in the user's cache.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{cache_dir, packages, process};

/// Part of the file's name: raise it whenever what is built changes.
const VERSION: u32 = 1;

/// An uncompressed layer.
#[derive(Debug)]
pub struct RootfsLayer {
    pub path: PathBuf,
    /// In hexadecimal.
    pub sha256: String,
    pub size: u64,
}

pub fn nginx() -> Result<RootfsLayer> {
    let path = cache_dir("images")?.join(format!("nginx-bookworm-{VERSION}.tar"));
    if !path.exists() {
        packages::ensure_installed(&[packages::MMDEBSTRAP])?;
        build(&path)?;
    }
    RootfsLayer::of(path)
}

/// Builds under another name first, so that a file under the final name is always whole.
fn build(path: &Path) -> Result<()> {
    let unfinished = path.with_extension(format!("{}.tar", std::process::id()));
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--include=nginx"]);
    for excluded in ["doc", "man", "locale", "info"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{excluded}/*"));
    }
    // The runtime keeps what goes to these two; a file in the container would only grow.
    for (log, stream) in [("access.log", "/dev/stdout"), ("error.log", "/dev/stderr")] {
        command.arg(format!("--customize-hook=ln -sf {stream} \"$1/var/log/nginx/{log}\""));
    }
    command.arg("bookworm").arg(&unfinished);
    let built = process::run(&mut command).and_then(|()| Ok(fs::rename(&unfinished, path)?));
    if built.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    built
}

impl RootfsLayer {
    fn of(path: PathBuf) -> Result<Self> {
        let mut file = fs::File::open(&path)?;
        let mut hash = Sha256::new();
        let size = io::copy(&mut file, &mut hash).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path, sha256: format!("{:x}", hash.finalize()), size })
    }
}
