//! Writes images as an archive that `docker load`, containerd, podman and skopeo read: an OCI layout with Docker's
//! `manifest.json` beside it.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Write},
};

use serde_json::{Value, json};

use super::{
    Context, ImageError, ImageRecord, ImageReference, ImageStore,
    archive::{CONTAINERD_NAME, REF_NAME},
    manifest::ManifestDocument,
};

/// An image with the names under which it is saved.
struct SavedImage {
    record: ImageRecord,
    names: Vec<ImageReference>,
}

/// Writes these images, by name or id, as one archive; blocks. An image that is named by its id keeps all its names.
pub fn save_archive(store: &ImageStore, names: &[String], output: impl Write) -> Result<(), ImageError> {
    // Blobs stay while they are read.
    let _addition = store.begin_addition();
    let images = select_images(store, names)?;
    let (mut written, mut index, mut docker) = (HashSet::new(), Vec::new(), Vec::new());
    let mut archive = tar::Builder::new(output);
    for image in &images {
        for digest in &image.record.blobs {
            if written.insert(digest.clone()) {
                append_blob(&mut archive, store, digest)?;
            }
        }
        index.extend(index_entries(store, image)?);
        docker.push(docker_entry(store, image)?);
    }
    append_document(&mut archive, "oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
    let media_type = "application/vnd.oci.image.index.v1+json";
    let document = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": index });
    append_document(&mut archive, "index.json", &document)?;
    append_document(&mut archive, "manifest.json", &docker.into())?;
    archive.into_inner().and_then(|mut output| output.flush()).while_doing(|| "write the archive".into())
}

fn select_images(store: &ImageStore, names: &[String]) -> Result<Vec<SavedImage>, ImageError> {
    let mut images: Vec<SavedImage> = Vec::new();
    for name in names {
        let record = store.find(name).ok_or_else(|| ImageError::NotFound(name.clone()))?;
        let named =
            ImageReference::parse(name).ok().filter(|one| one.tagged().is_some_and(|tag| record.tags.contains(&tag)));
        let all = || record.tags.iter().filter_map(|tag| ImageReference::parse(tag).ok()).collect();
        let names = named.map_or_else(all, |name| vec![name]);
        match images.iter_mut().find(|image| image.record.id == record.id) {
            Some(known) => known.names.extend(names),
            None => images.push(SavedImage { record, names }),
        }
    }
    Ok(images)
}

/// An entry per name; one without a name for an image that has none.
fn index_entries(store: &ImageStore, image: &SavedImage) -> Result<Vec<Value>, ImageError> {
    let text = store.read_blob(&image.record.manifest)?;
    let media_type = match ManifestDocument::parse(&text)?.media_type {
        empty if empty.is_empty() => "application/vnd.oci.image.manifest.v1+json".to_owned(),
        given => given,
    };
    let entry = |annotations: Value| json!({ "mediaType": media_type, "digest": image.record.manifest, "size": text.len(), "annotations": annotations });
    let named = image.names.iter().map(|name| entry(json!({ CONTAINERD_NAME: name.to_string(), REF_NAME: name.tag })));
    let named: Vec<Value> = named.collect();
    Ok(if named.is_empty() { vec![entry(json!({}))] } else { named })
}

fn docker_entry(store: &ImageStore, image: &SavedImage) -> Result<Value, ImageError> {
    let manifest = ManifestDocument::parse(&store.read_blob(&image.record.manifest)?)?;
    let layers: Vec<String> = manifest.layers.iter().map(|layer| blob_name(&layer.digest)).collect();
    let tags: Vec<String> = image.names.iter().map(docker_name).collect();
    Ok(json!({ "Config": blob_name(&image.record.id), "RepoTags": tags, "Layers": layers }))
}

/// Docker leaves out what is its default.
fn docker_name(name: &ImageReference) -> String {
    let whole = name.to_string();
    let short = whole.strip_prefix("docker.io/").unwrap_or(&whole);
    short.strip_prefix("library/").unwrap_or(short).to_owned()
}

fn blob_name(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn append_blob(archive: &mut tar::Builder<impl Write>, store: &ImageStore, digest: &str) -> Result<(), ImageError> {
    let what = || format!("blob {digest}");
    let file = File::open(store.blob_path(digest)).while_doing(what)?;
    let length = file.metadata().while_doing(what)?.len();
    append_file(archive, &blob_name(digest), length, file).while_doing(what)
}

fn append_document(archive: &mut tar::Builder<impl Write>, name: &str, value: &Value) -> Result<(), ImageError> {
    let text = value.to_string();
    append_file(archive, name, text.len() as u64, text.as_bytes()).while_doing(|| name.to_owned())
}

fn append_file(archive: &mut tar::Builder<impl Write>, name: &str, length: u64, data: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(length);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, name, data)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{load_archive, manifest::digest_of},
        *,
    };

    /// An archive as `docker save` writes it, with one file in one layer.
    fn docker_archive() -> Vec<u8> {
        let mut layer = tar::Builder::new(Vec::new());
        append_file(&mut layer, "hello", 5, &b"world"[..]).unwrap();
        let layer = layer.into_inner().unwrap();
        let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": { "diff_ids": [digest_of(&layer)] } });
        let mut archive = tar::Builder::new(Vec::new());
        append_file(&mut archive, "a/layer.tar", layer.len() as u64, layer.as_slice()).unwrap();
        append_document(&mut archive, "config.json", &config).unwrap();
        let manifest = json!([{ "Config": "config.json", "RepoTags": ["app:1"], "Layers": ["a/layer.tar"] }]);
        append_document(&mut archive, "manifest.json", &manifest).unwrap();
        archive.into_inner().unwrap()
    }

    #[test]
    fn saved_image_is_the_same_when_loaded() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [first, second] = directories.each_ref().map(|dir| ImageStore::open(dir.path()).unwrap());
        let loaded = load_archive(&first, io::Cursor::new(docker_archive()), None).unwrap();
        assert_eq!(loaded[0].tags.iter().collect::<Vec<_>>(), ["docker.io/library/app:1"]);
        first.tag("app:1", &ImageReference::parse("registry.example/app:2").unwrap()).unwrap();
        let mut archive = Vec::new();
        save_archive(&first, &[loaded[0].id.clone()], &mut archive).unwrap();
        let again = load_archive(&second, io::Cursor::new(archive), None).unwrap();
        assert_eq!(again.last().unwrap().id, loaded[0].id);
        let found = second.find("registry.example/app:2").unwrap();
        assert_eq!(found.tags.len(), 2);
        let file = second.layers_dir().join(&found.layers[0]).join("hello");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "world");
        assert!(matches!(save_archive(&first, &["none".into()], io::sink()), Err(ImageError::NotFound(_))));
    }

    #[test]
    fn documents_of_an_archive_do_not_stay() {
        let directory = tempfile::tempdir().unwrap();
        let store = ImageStore::open(directory.path()).unwrap();
        let loaded = load_archive(&store, io::Cursor::new(docker_archive()), None).unwrap();
        let blobs = std::fs::read_dir(directory.path().join("blobs/sha256")).unwrap().count();
        assert_eq!(blobs, loaded[0].blobs.len());
    }
}
