//! Writing an image into an OCI image layout: a directory of blobs named by their digests, and an index of names.
//!
//! The index is replaced as a whole and last, so that concurrent readers see only complete images.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::rootfs::RootfsLayer;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// OCI's annotation of an image's name, which the cluster's mirror reads.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation that containerd's import reads first.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// An image in a layout.
#[derive(Debug)]
pub struct ImageLayout {
    /// Its entries of the index, one for each name.
    pub entries: Vec<Value>,
    /// The hexadecimal digests of its blobs.
    pub blobs: Vec<String>,
}

/// Adds an image of one layer, under all of `tags`.
pub fn write(dir: &Path, layer: &RootfsLayer, tags: &[String]) -> Result<ImageLayout> {
    fs::create_dir_all(dir.join("blobs/sha256")).with_context(|| format!("cannot create {}", dir.display()))?;
    copy_blob(dir, layer)?;
    let config = put_blob(dir, &config(layer)?)?;
    let manifest = put_blob(dir, &manifest(layer, &config))?;
    let entries: Vec<_> = tags.iter().map(|tag| entry(&manifest, tag)).collect();
    replace(&dir.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes())?;
    add_to_index(&dir.join("index.json"), &entries)?;
    Ok(ImageLayout { entries, blobs: vec![manifest.sha256, config.sha256, layer.sha256.clone()] })
}

/// The index of a layout with these entries.
pub fn index(entries: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries })
}

struct BlobDescriptor {
    sha256: String,
    size: usize,
}

fn config(layer: &RootfsLayer) -> Result<Value> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no image can be made for {other} yet, only for x86_64 and aarch64"),
    };
    Ok(json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Cmd": ["nginx", "-g", "daemon off;"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "ExposedPorts": { "80/tcp": {} },
            "StopSignal": "SIGQUIT",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.sha256)] },
    }))
}

fn manifest(layer: &RootfsLayer, config: &BlobDescriptor) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": format!("sha256:{}", config.sha256), "size": config.size },
        "layers": [{ "mediaType": LAYER, "digest": format!("sha256:{}", layer.sha256), "size": layer.size }],
    })
}

fn entry(manifest: &BlobDescriptor, tag: &str) -> Value {
    json!({
        "mediaType": MANIFEST,
        "digest": format!("sha256:{}", manifest.sha256),
        "size": manifest.size,
        "annotations": { REF_NAME: tag, CONTAINERD_NAME: tag },
    })
}

fn put_blob(dir: &Path, contents: &Value) -> Result<BlobDescriptor> {
    let bytes = contents.to_string().into_bytes();
    let sha256 = format!("{:x}", Sha256::digest(&bytes));
    replace(&blob_path(dir, &sha256), &bytes)?;
    Ok(BlobDescriptor { sha256, size: bytes.len() })
}

fn copy_blob(dir: &Path, layer: &RootfsLayer) -> Result<()> {
    let path = blob_path(dir, &layer.sha256);
    if fs::metadata(&path).is_ok_and(|blob| blob.len() == layer.size) {
        return Ok(());
    }
    let unfinished = unfinished(&path);
    fs::copy(&layer.path, &unfinished).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::rename(unfinished, path)?)
}

/// Keeps the entries of other names.
fn add_to_index(path: &Path, entries: &[Value]) -> Result<()> {
    let mut index = match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => index(&[]),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let Some(all) = index["manifests"].as_array_mut() else { bail!("{} has no manifests", path.display()) };
    let name = |entry: &Value| entry["annotations"][REF_NAME].clone();
    let replaced: Vec<_> = entries.iter().map(name).collect();
    all.retain(|entry| !replaced.contains(&name(entry)));
    all.extend_from_slice(entries);
    replace(path, index.to_string().as_bytes())
}

fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = unfinished(path);
    fs::write(&unfinished, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::rename(unfinished, path)?)
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.tmp", std::process::id()))
}

pub fn blob_path(dir: &Path, sha256: &str) -> PathBuf {
    dir.join("blobs/sha256").join(sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(dir: &Path, contents: &str) -> RootfsLayer {
        let path = dir.join(format!("{contents}.tar"));
        fs::write(&path, contents).unwrap();
        RootfsLayer { path, sha256: format!("{:x}", Sha256::digest(contents)), size: contents.len() as u64 }
    }

    fn names(dir: &Path) -> Vec<(String, String)> {
        let index: Value = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = index["manifests"].as_array().unwrap().iter();
        entries.map(|entry| (text(&entry["annotations"][REF_NAME]), text(&entry["digest"]))).collect()
    }

    #[test]
    fn names_are_replaced_one_by_one_and_blobs_match_their_digests() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let old = write(&images, &layer(dir.path(), "old"), &["r.io/a:1".into(), "r.io/b:1".into()]).unwrap();
        let new = write(&images, &layer(dir.path(), "new"), &["r.io/b:1".into()]).unwrap();
        let digest = |image: &ImageLayout| format!("sha256:{}", image.blobs[0]);
        assert_eq!(names(&images), [("r.io/a:1".into(), digest(&old)), ("r.io/b:1".into(), digest(&new))]);
        for blob in fs::read_dir(images.join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert_eq!(format!("{:x}", Sha256::digest(fs::read(&path).unwrap())), name);
        }
    }
}
