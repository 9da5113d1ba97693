//! `cargo xtask image nginx`: an nginx image made of Debian's packages, for machines that reach no image registry.
//!
//! It is put into the cluster's image layout, which the cluster's mirror serves, and into the cluster's containerd.

mod import;
mod layout;
mod rootfs;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::process::step;

/// Make a container image and load it into a cluster
#[derive(Debug, clap::Args)]
pub struct ImageArgs {
    /// Which image
    image: ImageName,

    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferry")]
    data_dir: PathBuf,

    /// The image's whole name; may be given several times
    #[arg(long = "tag", value_name = "REF", default_value = "docker.io/library/nginx:latest", value_parser = reference)]
    tags: Vec<String>,
}

/// The images that can be made.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ImageName {
    Nginx,
}

pub fn run(args: &ImageArgs) -> Result<()> {
    let ImageName::Nginx = args.image;
    let socket = args.data_dir.join("containerd/containerd.sock");
    if args.data_dir.join("runtime/cri.sock").exists() {
        // The runtime in ferry itself pulls it from the mirror.
        return write_layout(&args.data_dir, &args.tags).map(drop);
    }
    if !socket.exists() {
        let dir = args.data_dir.display();
        bail!("no cluster with its own runtime is up on {dir}. Type: sudo ferry up --data-dir {dir}");
    }
    load(&args.data_dir, &socket, &args.tags)
}

fn write_layout(data_dir: &Path, tags: &[String]) -> Result<layout::ImageLayout> {
    let layer = step("root file system of Debian's nginx", rootfs::nginx)?;
    let dir = data_dir.join("images");
    step(&format!("image layout {}", dir.display()), || layout::write(&dir, &layer, tags))
}

fn load(data_dir: &Path, socket: &Path, tags: &[String]) -> Result<()> {
    let image = write_layout(data_dir, tags)?;
    let dir = data_dir.join("images");
    step(&format!("import into containerd as {}", tags.join(", ")), || import::import(&dir, &image, socket))
}

/// Accepts `registry/repository:tag`: containerd and the mirror know images by whole names only.
fn reference(text: &str) -> Result<String, String> {
    let host = text.split_once('/').map_or("", |(host, _)| host);
    let tag = text.rsplit_once('/').and_then(|(_, name)| name.split_once(':'));
    let whole = (host.contains(['.', ':']) || host == "localhost")
        && tag.is_some_and(|(name, tag)| !name.is_empty() && !tag.is_empty() && !text.contains('@'));
    let hint = || format!("{text:?} is not a whole name such as docker.io/library/nginx:latest");
    if whole { Ok(text.into()) } else { Err(hint()) }
}

#[cfg(test)]
mod tests {
    use super::reference;

    #[test]
    fn only_whole_names_are_accepted() {
        for whole in ["docker.io/library/nginx:latest", "localhost:5000/a/b:1", "localhost/nginx:1.22"] {
            assert_eq!(reference(whole).unwrap(), whole);
        }
        for part in
            ["nginx", "nginx:latest", "library/nginx:latest", "docker.io/library/nginx", "docker.io/a:1@sha256:0"]
        {
            assert!(reference(part).is_err(), "{part}");
        }
    }
}
