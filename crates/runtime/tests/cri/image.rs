//! Images for the tests: archives as `docker save` writes them.

use serde_json::json;
use sha2::{Digest, Sha256};

/// Content of an image beside busybox.
#[derive(Default)]
pub struct ImageFiles<'a> {
    /// Regular files.
    pub files: &'a [(&'a str, &'a [u8])],
    /// Symbolic links: path and target.
    pub links: &'a [(&'a str, &'a str)],
    /// Whether busybox is there, with `/proc`, `/etc` and `/tmp`.
    pub has_base: bool,
}

/// Builds an archive with one image of one layer.
pub fn build_archive(name: &str, files: &ImageFiles<'_>) -> Vec<u8> {
    let layer = build_layer(files);
    let digest: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    let config = json!({ "architecture": "amd64", "os": "linux",
        "config": { "Cmd": ["/bin/sh"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] } });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "layer.tar", &layer);
    append(&mut archive, "config.json", config.to_string().as_bytes());
    append(&mut archive, "manifest.json", manifest.to_string().as_bytes());
    archive.into_inner().unwrap()
}

fn build_layer(files: &ImageFiles<'_>) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    if files.has_base {
        let program = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| std::fs::read(path).ok()).unwrap();
        append(&mut layer, "bin/busybox", &program);
        for name in ["sh", "cat", "ls", "sleep", "mount", "mknod", "head", "mkdir", "httpd", "id", "true", "seq"] {
            append_link(&mut layer, &format!("bin/{name}"), "busybox");
        }
    }
    files.links.iter().for_each(|(name, target)| append_link(&mut layer, name, target));
    files.files.iter().for_each(|(name, content)| append(&mut layer, name, content));
    layer.into_inner().unwrap()
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    archive.append_data(&mut header, name, content).unwrap();
}

fn append_link(archive: &mut tar::Builder<Vec<u8>>, name: &str, target: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    header.set_mode(0o777);
    archive.append_link(&mut header, name, target).unwrap();
}
