//! Pulls an image: manifest, then configuration and layers in parallel, then unpacking.

#[cfg(test)]
mod tests;

use std::{
    io::{Seek, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};

use super::{
    Context, ImageError, ImageRecord, ImageReference, ImageStore,
    manifest::{Descriptor, ManifestDocument, digest_of, format_digest},
    registry::{RegistryClient, RegistryCredentials},
    registry_hosts::registry_hosts,
};

/// Layers fetched at once.
const AT_ONCE: usize = 4;
/// Attempts for a blob; each goes on where the last one broke off.
const ATTEMPTS: u32 = 5;
/// Time without a byte after which a connection counts as broken.
const STALLED: Duration = Duration::from_secs(30);

/// Settings of image pulls.
#[derive(Clone, Debug, Default)]
pub struct PullOptions {
    /// The directory of `hosts.toml` files.
    pub hosts: Option<PathBuf>,
}

/// Pulls an image into the store.
pub async fn pull_image(
    store: &Arc<ImageStore>,
    reference: &ImageReference,
    credentials: Option<RegistryCredentials>,
    options: &PullOptions,
) -> Result<ImageRecord, ImageError> {
    let _addition = store.begin_addition();
    let mut failures: Vec<ImageError> = Vec::new();
    for host in registry_hosts(options.hosts.as_deref(), &reference.registry)? {
        // A mirror does not get the registry's credentials.
        let credentials = credentials.clone().filter(|_| !host.is_mirror);
        let pulled = match RegistryClient::new(host, reference, credentials) {
            Ok(client) => pull_from(store, &client, reference).await,
            Err(error) => Err(error),
        };
        match pulled {
            Ok(image) => return Ok(image),
            Err(error) => {
                tracing::debug!(%error, %reference, "image: pull failed, trying the next server");
                failures.push(error);
            }
        }
    }
    // The last server is the registry itself; what it says counts.
    let error = failures.pop().unwrap_or_else(|| ImageError::NotFound(reference.to_string()));
    Err(ImageError::Pull { reference: reference.to_string(), source: Box::new(error) })
}

async fn pull_from(
    store: &Arc<ImageStore>,
    client: &RegistryClient,
    reference: &ImageReference,
) -> Result<ImageRecord, ImageError> {
    let wanted = reference.digest.clone().or_else(|| reference.tag.clone()).unwrap_or_else(|| "latest".into());
    let text = client.manifest(&wanted).await?;
    let top = digest_of(&text);
    check_digest(reference.digest.as_deref(), &top, "manifest")?;
    let mut document = ManifestDocument::parse(&text)?;
    let mut manifest = store.write_blob(&text)?;
    if document.config.is_none() {
        let Some(selected) = document.select_platform().cloned() else {
            return Err(ImageError::Invalid(format!("{reference}: no match for this platform in the index")));
        };
        let text = client.manifest(&selected.digest).await?;
        check_digest(Some(&selected.digest), &digest_of(&text), "manifest")?;
        document = ManifestDocument::parse(&text)?;
        manifest = store.write_blob(&text)?;
    }
    let config =
        document.config.clone().ok_or_else(|| ImageError::Invalid("the manifest has no configuration".into()))?;
    let mut blobs: Vec<Descriptor> = vec![config];
    for layer in document.layers {
        if !blobs.iter().any(|known| known.digest == layer.digest) {
            blobs.push(layer);
        }
    }
    stream::iter(blobs)
        .map(Ok)
        .try_for_each_concurrent(AT_ONCE, |blob| async move { fetch_blob(store, client, &blob).await })
        .await?;
    let tags: Vec<String> = reference.tagged().filter(|_| reference.digest.is_none()).into_iter().collect();
    let digests = vec![reference.with_digest(&top)];
    let store = store.clone();
    let added = tokio::task::spawn_blocking(move || store.add_image(&manifest, &tags, &digests));
    added.await.map_err(|error| ImageError::Registry(error.to_string()))?
}

fn check_digest(expected: Option<&str>, found: &str, what: &str) -> Result<(), ImageError> {
    match expected {
        Some(expected) if expected != found => {
            Err(ImageError::Digest { what: what.into(), expected: expected.into(), found: found.into() })
        }
        _ => Ok(()),
    }
}

/// Fetches a blob unless it is there; a connection that breaks off is resumed.
async fn fetch_blob(store: &ImageStore, client: &RegistryClient, blob: &Descriptor) -> Result<(), ImageError> {
    let _lock = store.locks().lock(&blob.digest).await;
    if store.has_blob(&blob.digest) {
        return Ok(());
    }
    let mut ingest = store.new_ingest()?;
    let mut hash = Sha256::new();
    let mut length = 0;
    let mut attempt = 0;
    loop {
        let before = length;
        match fetch_rest(client, blob, &mut ingest.1, &mut hash, &mut length).await {
            Ok(()) => break,
            Err(error @ (ImageError::Registry(_) | ImageError::Io { .. })) => {
                // Progress earns new attempts.
                attempt = if length > before { 0 } else { attempt + 1 };
                if attempt >= ATTEMPTS {
                    let _ = std::fs::remove_file(&ingest.0);
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
            }
            Err(error) => {
                let _ = std::fs::remove_file(&ingest.0);
                return Err(error);
            }
        }
    }
    let found = format_digest(&hash.finalize());
    if found != blob.digest {
        let _ = std::fs::remove_file(&ingest.0);
        return Err(ImageError::Digest { what: "layer".into(), expected: blob.digest.clone(), found });
    }
    store.commit_blob(ingest, &blob.digest)
}

async fn fetch_rest(
    client: &RegistryClient,
    blob: &Descriptor,
    file: &mut std::fs::File,
    hash: &mut Sha256,
    length: &mut u64,
) -> Result<(), ImageError> {
    let response = client.blob(&blob.digest, *length).await?;
    if *length > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
        // The server begins anew, so do we.
        *length = 0;
        *hash = Sha256::new();
        file.set_len(0).while_doing(|| "write a layer".into())?;
        file.rewind().while_doing(|| "write a layer".into())?;
    }
    let broke_off = |why: &dyn std::fmt::Display| ImageError::Registry(format!("layer {}: {why}", blob.digest));
    let mut body = response.into_body();
    loop {
        let frame = match tokio::time::timeout(STALLED, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(broke_off(&error)),
            Ok(None) => break,
            Err(_) => return Err(broke_off(&"the server stopped sending")),
        };
        if let Ok(data) = frame.into_data() {
            *length += data.len() as u64;
            if blob.size > 0 && *length > blob.size {
                return Err(ImageError::Invalid(format!("layer {}: it is longer than its size", blob.digest)));
            }
            hash.update(&data);
            file.write_all(&data).while_doing(|| "write a layer".into())?;
        }
    }
    if blob.size > 0 && *length < blob.size {
        return Err(broke_off(&"the connection ended early"));
    }
    Ok(())
}
