//! Loads images from archives, compressed or not: OCI layouts and `docker save`.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::json;

use super::{
    Context, ImageError, ImageRecord, ImageReference, ImageStore,
    layer::{Compression, DigestReader, compression, decompress},
    manifest::{Descriptor, LARGEST_DOCUMENT, ManifestDocument},
};

/// The annotation with the name of an image, or with its tag only.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the whole name of an image.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// An entry of `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Files of an archive that are in the store or in memory.
struct ArchiveFiles {
    /// Digest and length by path.
    blobs: HashMap<PathBuf, (String, u64)>,
}

/// Loads all images of an archive; blocks. Images without a name get `name` if it is given.
pub fn load_archive(
    store: &ImageStore,
    archive: impl Read + Send + 'static,
    name: Option<&ImageReference>,
) -> Result<Vec<ImageRecord>, ImageError> {
    let addition = store.begin_addition();
    // Documents of the archive that are no part of an image.
    addition.remove_leftovers_afterwards();
    let files = ArchiveFiles::read(store, decompress(archive)?)?;
    let images = if files.blobs.contains_key(Path::new("index.json")) {
        load_layout(store, &files, name)?
    } else if files.blobs.contains_key(Path::new("manifest.json")) {
        load_docker(store, &files, name)?
    } else {
        return Err(ImageError::Invalid("the archive has neither index.json nor manifest.json".into()));
    };
    if images.is_empty() {
        return Err(ImageError::Invalid("the archive has no image for this machine".into()));
    }
    Ok(images)
}

impl ArchiveFiles {
    fn read(store: &ImageStore, archive: impl Read) -> Result<Self, ImageError> {
        let mut blobs = HashMap::new();
        let mut links = Vec::new();
        let mut archive = tar::Archive::new(archive);
        for entry in archive.entries().while_doing(|| "read the archive".into())? {
            let mut entry = entry.while_doing(|| "read the archive".into())?;
            let path = entry.path().while_doing(|| "read the archive".into())?.components().collect::<PathBuf>();
            let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
            match entry.header().entry_type() {
                tar::EntryType::Regular => {}
                tar::EntryType::Symlink | tar::EntryType::Link => {
                    if let Ok(Some(target)) = entry.link_name() {
                        links.push((path, target.into_owned()));
                    }
                    continue;
                }
                _ => continue,
            }
            let (place, mut file) = store.new_ingest()?;
            let mut reader = DigestReader::new(&mut entry);
            io::copy(&mut reader, &mut file).while_doing(|| format!("read {}", path.display()))?;
            let (length, digest) = (reader.length, reader.digest());
            if store.has_blob(&digest) {
                fs::remove_file(&place).while_doing(|| place.display().to_string())?;
            } else {
                store.commit_blob((place, file), &digest)?;
            }
            blobs.insert(path, (digest, length));
        }
        // `docker save` links layers that are the same.
        for (path, target) in links {
            let resolved = path.parent().unwrap_or(Path::new("")).join(&target);
            let found = blobs.get(&normalize(&resolved)).or_else(|| blobs.get(&target)).cloned();
            if let Some(found) = found {
                blobs.insert(path, found);
            }
        }
        Ok(Self { blobs })
    }

    fn document(&self, store: &ImageStore, path: &str) -> Result<Vec<u8>, ImageError> {
        let (digest, length) =
            self.blobs.get(Path::new(path)).ok_or_else(|| ImageError::Invalid(format!("the archive has no {path}")))?;
        if *length > LARGEST_DOCUMENT {
            return Err(ImageError::Invalid(format!("{path} is too large")));
        }
        store.read_blob(digest)
    }
}

fn normalize(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(clean.pop()),
            std::path::Component::Normal(name) => clean.push(name),
            _ => {}
        }
    }
    clean
}

fn load_layout(
    store: &ImageStore,
    files: &ArchiveFiles,
    name: Option<&ImageReference>,
) -> Result<Vec<ImageRecord>, ImageError> {
    let index = ManifestDocument::parse(&files.document(store, "index.json")?)?;
    let mut images = Vec::new();
    for entry in &index.manifests {
        let annotation = |key: &str| ImageReference::parse(entry.annotations.get(key)?).ok();
        // Many tools write nothing but a tag as the reference's name.
        let reference = annotation(CONTAINERD_NAME).or_else(|| name.cloned()).or_else(|| annotation(REF_NAME));
        let Some(manifest) = resolve_manifest(store, entry)? else { continue };
        let tags: Vec<String> = reference.iter().filter_map(ImageReference::tagged).collect();
        let digests: Vec<String> = reference.iter().map(|name| name.with_digest(&entry.digest)).collect();
        images.push(store.add_image(&manifest, &tags, &digests)?);
    }
    Ok(images)
}

/// The manifest for this machine; `None` if an index has none.
fn resolve_manifest(store: &ImageStore, entry: &Descriptor) -> Result<Option<String>, ImageError> {
    let document = ManifestDocument::parse(&store.read_blob(&entry.digest)?)?;
    if document.config.is_some() {
        return Ok(Some(entry.digest.clone()));
    }
    Ok(document.select_platform().map(|selected| selected.digest.clone()))
}

/// The media type of a layer, by its first bytes.
fn layer_type(store: &ImageStore, digest: &str) -> Result<&'static str, ImageError> {
    let mut first = Vec::new();
    let opened = fs::File::open(store.blob_path(digest));
    opened.and_then(|file| file.take(4).read_to_end(&mut first)).while_doing(|| format!("layer {digest}"))?;
    Ok(match compression(&first) {
        Compression::None => "application/vnd.oci.image.layer.v1.tar",
        Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        Compression::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
    })
}

fn load_docker(
    store: &ImageStore,
    files: &ArchiveFiles,
    name: Option<&ImageReference>,
) -> Result<Vec<ImageRecord>, ImageError> {
    let text = files.document(store, "manifest.json")?;
    let list: Vec<DockerManifest> =
        serde_json::from_slice(&text).map_err(|error| ImageError::Invalid(format!("manifest.json: {error}")))?;
    let mut images = Vec::new();
    for one in list {
        let blob = |path: &str| {
            let found = files.blobs.get(&normalize(Path::new(path)));
            found.cloned().ok_or_else(|| ImageError::Invalid(format!("the archive has no {path}")))
        };
        let descriptor = |kind: &str, path: &str| {
            let (digest, size) = blob(path)?;
            Ok::<_, ImageError>(json!({ "mediaType": kind, "digest": digest, "size": size }))
        };
        let layers = one.layers.iter().map(|path| descriptor(layer_type(store, &blob(path)?.0)?, path));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &one.config)?,
            "layers": layers.collect::<Result<Vec<_>, _>>()?,
        });
        let digest = store.write_blob(manifest.to_string().as_bytes())?;
        let references: Vec<ImageReference> = one
            .repo_tags
            .iter()
            .flatten()
            .filter_map(|tag| ImageReference::parse(tag).ok())
            .chain(name.cloned())
            .collect();
        let tags: Vec<String> = references.iter().filter_map(ImageReference::tagged).collect();
        let digests: Vec<String> = references.iter().map(|name| name.with_digest(&digest)).collect();
        images.push(store.add_image(&digest, &tags, &digests)?);
    }
    Ok(images)
}
