//! The store: an index of images and layers, blobs by digest, unpacked layers by number.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    Context, ImageError, ImageReference,
    content_locks::ContentLocks,
    layer::{DigestReader, open_layer},
    manifest::{Descriptor, ImageConfig, LARGEST_DOCUMENT, ManifestDocument, digest_of},
    reference::is_digest,
    unpack::unpack_layer,
};
use crate::state_file::{read_state, write_state};

/// An image; its id is the digest of its configuration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ImageRecord {
    /// The id.
    pub id: String,
    /// The digest of the manifest.
    pub manifest: String,
    /// Names with tags.
    pub tags: BTreeSet<String>,
    /// Names with digests.
    pub digests: BTreeSet<String>,
    /// Digests of all blobs.
    pub blobs: Vec<String>,
    /// Directories of the layers, the lowest first, relative to [`ImageStore::layers_dir`].
    pub layers: Vec<String>,
    /// Bytes of the blobs.
    pub size: u64,
    /// Whether garbage collection keeps it.
    pub pinned: bool,
}

/// The index on disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct StoreIndex {
    images: BTreeMap<String, ImageRecord>,
    /// Directories of unpacked layers by chain id.
    layers: BTreeMap<String, String>,
    next_layer: u64,
}

/// Images on disk.
pub struct ImageStore {
    root: PathBuf,
    index: Mutex<StoreIndex>,
    additions: Mutex<PendingAdditions>,
    locks: ContentLocks,
}

/// Pulls and loads that are under way; what they wrote is not in the index yet.
#[derive(Default)]
struct PendingAdditions {
    count: usize,
    /// Leftovers are to be removed when the last one is done.
    removal_waits: bool,
}

/// A pull or load: while it exists, nothing that the index does not name is removed.
pub struct ImageAddition<'a> {
    store: &'a ImageStore,
}

impl ImageAddition<'_> {
    /// Removes what the index does not name once no pull or load is under way.
    pub fn remove_leftovers_afterwards(&self) {
        self.store.additions.lock().unwrap_or_else(PoisonError::into_inner).removal_waits = true;
    }
}

impl Drop for ImageAddition<'_> {
    fn drop(&mut self) {
        let mut additions = self.store.additions.lock().unwrap_or_else(PoisonError::into_inner);
        additions.count -= 1;
        if additions.count == 0 && std::mem::take(&mut additions.removal_waits) {
            self.store.remove_leftovers();
        }
    }
}

impl ImageStore {
    /// Opens a store and removes what a crash left in it.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        for directory in ["blobs/sha256", "layers", "ingest"] {
            let path = root.join(directory);
            fs::create_dir_all(&path).while_doing(|| path.display().to_string())?;
        }
        let index: StoreIndex =
            read_state(&root.join("index.json")).while_doing(|| "read the index of images".into())?.unwrap_or_default();
        let store = Self {
            root: root.to_owned(),
            index: Mutex::new(index),
            additions: Mutex::default(),
            locks: ContentLocks::default(),
        };
        store.remove_leftovers();
        Ok(store)
    }

    /// The directory of layers.
    pub fn layers_dir(&self) -> PathBuf {
        self.root.join("layers")
    }

    /// All images.
    pub fn list(&self) -> Vec<ImageRecord> {
        self.lock().images.values().cloned().collect()
    }

    /// Finds an image by id, the beginning of one, tag or digest.
    pub fn find(&self, name: &str) -> Option<ImageRecord> {
        let index = self.lock();
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        if let Some(image) = index.images.get(&format!("sha256:{hex}")) {
            return Some(image.clone());
        }
        let reference = ImageReference::parse(name).ok();
        let named = reference.and_then(|reference| {
            let name = reference.to_string();
            index.images.values().find(|image| image.tags.contains(&name) || image.digests.contains(&name)).cloned()
        });
        let is_prefix = hex.len() >= 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        named.or_else(|| {
            let prefix = format!("sha256:{hex}");
            is_prefix.then(|| index.images.values().find(|image| image.id.starts_with(&prefix)).cloned())?
        })
    }

    /// Reads the configuration of an image.
    pub fn config(&self, image: &ImageRecord) -> Result<ImageConfig, ImageError> {
        ImageConfig::parse(&self.read_blob(&image.id)?)
    }

    /// The path of a blob.
    pub fn blob_path(&self, digest: &str) -> PathBuf {
        let hex = if is_digest(digest) { &digest[7..] } else { "invalid" };
        self.root.join("blobs/sha256").join(hex)
    }

    /// Whether a blob is there.
    pub fn has_blob(&self, digest: &str) -> bool {
        self.blob_path(digest).is_file()
    }

    /// Reads a small blob.
    pub fn read_blob(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let path = self.blob_path(digest);
        let length = fs::metadata(&path).while_doing(|| format!("blob {digest}"))?.len();
        if length > LARGEST_DOCUMENT {
            return Err(ImageError::Invalid(format!("blob {digest} is too large for a document")));
        }
        fs::read(&path).while_doing(|| format!("blob {digest}"))
    }

    /// Writes a small blob; returns its digest.
    pub fn write_blob(&self, bytes: &[u8]) -> Result<String, ImageError> {
        let digest = digest_of(bytes);
        if !self.has_blob(&digest) {
            let mut ingest = self.new_ingest()?;
            ingest.1.write_all(bytes).while_doing(|| "write a blob".into())?;
            self.commit_blob(ingest, &digest)?;
        }
        Ok(digest)
    }

    /// The locks under which content is fetched and unpacked.
    pub fn locks(&self) -> &ContentLocks {
        &self.locks
    }

    /// Begins a pull or load.
    pub fn begin_addition(&self) -> ImageAddition<'_> {
        self.additions.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        ImageAddition { store: self }
    }

    /// A new file for content whose digest is not known yet.
    pub fn new_ingest(&self) -> Result<(PathBuf, File), ImageError> {
        let path = self.root.join("ingest").join(uuid::Uuid::new_v4().simple().to_string());
        let file = File::create(&path).while_doing(|| path.display().to_string())?;
        Ok((path, file))
    }

    /// Makes content a blob; the caller has checked its digest.
    pub fn commit_blob(&self, (path, file): (PathBuf, File), digest: &str) -> Result<(), ImageError> {
        file.sync_data().while_doing(|| format!("write blob {digest}"))?;
        fs::rename(&path, self.blob_path(digest)).while_doing(|| format!("write blob {digest}"))
    }

    /// Unpacks the layers of a manifest that is in the store and adds the image under these names. Blocks.
    pub fn add_image(
        &self,
        manifest_digest: &str,
        tags: &[String],
        digests: &[String],
    ) -> Result<ImageRecord, ImageError> {
        let manifest = ManifestDocument::parse(&self.read_blob(manifest_digest)?)?;
        let Some(config_descriptor) = &manifest.config else {
            return Err(ImageError::Invalid("the manifest has no configuration".into()));
        };
        let config = ImageConfig::parse(&self.read_blob(&config_descriptor.digest)?)?;
        if config.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(ImageError::Invalid("manifest and configuration have different numbers of layers".into()));
        }
        let layers = self.unpack_layers(&manifest.layers, &config)?;
        let mut blobs = vec![manifest_digest.to_owned(), config_descriptor.digest.clone()];
        blobs.extend(manifest.layers.iter().map(|layer| layer.digest.clone()));
        let size = blobs.iter().filter_map(|digest| fs::metadata(self.blob_path(digest)).ok()).map(|file| file.len());
        let size = size.sum();
        let mut index = self.lock();
        for image in index.images.values_mut() {
            image.tags.retain(|tag| !tags.contains(tag));
        }
        let image = index.images.entry(config_descriptor.digest.clone()).or_default();
        image.id.clone_from(&config_descriptor.digest);
        image.manifest = manifest_digest.into();
        image.tags.extend(tags.iter().cloned());
        image.digests.extend(digests.iter().cloned());
        (image.blobs, image.layers, image.size) = (blobs, layers, size);
        let image = image.clone();
        self.save(&index)?;
        Ok(image)
    }

    fn unpack_layers(&self, layers: &[Descriptor], config: &ImageConfig) -> Result<Vec<String>, ImageError> {
        let mut directories: Vec<String> = Vec::new();
        for ((layer, diff_id), chain_id) in layers.iter().zip(&config.rootfs.diff_ids).zip(config.chain_ids()) {
            let _lock = self.locks.lock_blocking(&chain_id);
            let known = self.lock().layers.get(&chain_id).cloned();
            let directory = match known {
                Some(directory) if self.layers_dir().join(&directory).is_dir() => directory,
                _ => self.unpack_new_layer(&layer.digest, diff_id, &chain_id, &directories)?,
            };
            directories.push(directory);
        }
        Ok(directories)
    }

    fn unpack_new_layer(
        &self,
        blob: &str,
        diff_id: &str,
        chain_id: &str,
        below: &[String],
    ) -> Result<String, ImageError> {
        let path = self.blob_path(blob);
        let file = File::open(&path).while_doing(|| format!("layer {blob}"))?;
        let number = {
            let mut index = self.lock();
            index.next_layer += 1;
            index.next_layer
        };
        let name = number.to_string();
        let target = self.layers_dir().join(&name);
        fs::create_dir_all(&target).while_doing(|| target.display().to_string())?;
        let lower: Vec<PathBuf> = below.iter().rev().map(|name| self.layers_dir().join(name)).collect();
        let mut reader = DigestReader::new(open_layer(file)?);
        let unpacked = unpack_layer(&mut reader, &target, &lower).and_then(|size| {
            // The archive may be followed by padding, which counts too.
            io::copy(&mut reader, &mut io::sink()).while_doing(|| format!("layer {blob}"))?;
            Ok(size)
        });
        let found = reader.digest();
        let checked = unpacked.and_then(|_| match found == diff_id {
            true => Ok(()),
            false => Err(ImageError::Digest { what: format!("layer {blob}"), expected: diff_id.into(), found }),
        });
        if let Err(error) = checked {
            // What cannot be removed now is removed at the next start.
            let _ = sys::beneath::remove_tree(&target);
            return Err(error);
        }
        // Files must be on disk before the index names them.
        let directory = File::open(&target).while_doing(|| target.display().to_string())?;
        rustix::fs::syncfs(&directory).while_doing(|| "write a layer".into())?;
        let mut index = self.lock();
        let known = index.layers.get(chain_id).filter(|known| self.layers_dir().join(known).is_dir()).cloned();
        if let Some(known) = known {
            drop(index);
            // Another pull was faster; its directory may be in use.
            let _ = sys::beneath::remove_tree(&target);
            return Ok(known);
        }
        index.layers.insert(chain_id.into(), name.clone());
        self.save(&index)?;
        Ok(name)
    }

    /// Adds a name.
    pub fn tag(&self, name: &str, tag: &ImageReference) -> Result<(), ImageError> {
        let image = self.find(name).ok_or_else(|| ImageError::NotFound(name.into()))?;
        let Some(tag) = tag.tagged() else { return Err(ImageError::Reference(tag.to_string())) };
        let mut index = self.lock();
        for other in index.images.values_mut() {
            other.tags.remove(&tag);
        }
        if let Some(image) = index.images.get_mut(&image.id) {
            image.tags.insert(tag);
        }
        self.save(&index)
    }

    /// Removes an image; layers that are in use stay until the next removal.
    pub fn remove(&self, id: &str, used_layers: &HashSet<String>) -> Result<(), ImageError> {
        let mut index = self.lock();
        index.images.remove(id);
        let named: HashSet<String> = index.images.values().flat_map(|image| image.layers.clone()).collect();
        index.layers.retain(|_, directory| named.contains(directory) || used_layers.contains(directory));
        self.save(&index)?;
        drop(index);
        let mut additions = self.additions.lock().unwrap_or_else(PoisonError::into_inner);
        match additions.count {
            0 => self.remove_leftovers(),
            _ => additions.removal_waits = true,
        }
        Ok(())
    }

    /// Removes blobs, layers and files that the index does not name.
    fn remove_leftovers(&self) {
        let index = self.lock();
        let blobs: HashSet<&str> =
            index.images.values().flat_map(|image| &image.blobs).map(|blob| &blob[7..]).collect();
        let layers: HashSet<&str> = index.layers.values().map(String::as_str).collect();
        let remove = |directory: &str, is_named: &dyn Fn(&str) -> bool| {
            for entry in fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten() {
                if !entry.file_name().to_str().is_some_and(is_named) {
                    // Another attempt follows at the next removal.
                    let _ = sys::beneath::remove_tree(&entry.path());
                }
            }
        };
        remove("blobs/sha256", &|name| blobs.contains(name));
        remove("layers", &|name| layers.contains(name));
        remove("ingest", &|_| false);
    }

    fn save(&self, index: &StoreIndex) -> Result<(), ImageError> {
        write_state(&self.root.join("index.json"), index).while_doing(|| "write the index of images".into())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_a_pull_outlives_the_removal_of_another_image() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        let addition = store.begin_addition();
        let digest = store.write_blob(b"layer").unwrap();
        store.remove("sha256:other", &HashSet::new()).unwrap();
        assert!(store.has_blob(&digest));
        drop(addition);
        assert!(!store.has_blob(&digest), "nothing names it");
    }
}
