//! CRI's calls about images.

use std::{collections::HashSet, fs, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use tonic::{Code, Status};

use super::{RuntimeServer, blocking, internal, records::now};
use crate::{
    cri::types::*,
    image::{ImageError, ImageRecord, ImageReference, PullOptions, RegistryCredentials, pull_image},
};

impl RuntimeServer {
    /// Finds an image by its name or id.
    pub(super) fn find_image(&self, name: &str) -> Result<ImageRecord, Status> {
        let missing = || Status::not_found(format!("failed to resolve image {name:?}: not found"));
        self.images.find(name).ok_or_else(missing)
    }

    pub(super) async fn list_images(&self, request: ListImagesRequest) -> Result<ListImagesResponse, Status> {
        let wanted = request.filter.and_then(|filter| filter.image).map(|image| image.image);
        let found = match wanted.filter(|name| !name.is_empty()) {
            Some(name) => self.images.find(&name).into_iter().collect(),
            None => self.images.list(),
        };
        Ok(ListImagesResponse { images: found.iter().map(|image| self.describe_image(image)).collect() })
    }

    fn describe_image(&self, image: &ImageRecord) -> Image {
        let config = self.images.config(image).ok().and_then(|config| config.config).unwrap_or_default();
        let user = config.user.split(':').next().unwrap_or_default();
        let uid = user.parse::<i64>().ok();
        Image {
            id: image.id.clone(),
            repo_tags: image.tags.iter().cloned().collect(),
            repo_digests: image.digests.iter().cloned().collect(),
            size: image.size,
            uid: uid.map(|value| Int64Value { value }),
            username: if uid.is_none() { user.to_owned() } else { String::new() },
            spec: None,
            pinned: image.pinned,
        }
    }

    pub(super) async fn image_status(&self, request: ImageStatusRequest) -> Result<ImageStatusResponse, Status> {
        let name = request.image.unwrap_or_default().image;
        let found = self.images.find(&name);
        let mut info = std::collections::HashMap::new();
        if let Some(image) = found.as_ref().filter(|_| request.verbose)
            && let Ok(text) = self.images.read_blob(&image.id)
        {
            let spec: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            info.insert("info".to_owned(), serde_json::json!({ "imageSpec": spec }).to_string());
        }
        Ok(ImageStatusResponse { image: found.map(|image| self.describe_image(&image)), info })
    }

    pub(super) async fn pull_image(&self, request: PullImageRequest) -> Result<PullImageResponse, Status> {
        let name = request.image.unwrap_or_default().image;
        let reference = ImageReference::parse(&name)
            .map_err(|error| Status::invalid_argument(format!("failed to parse image reference {name:?}: {error}")))?;
        let credentials = request.auth.map(credentials).transpose()?.flatten();
        let options = PullOptions { hosts: self.options.registry_hosts.clone() };
        match pull_image(&self.images, &reference, credentials, &options).await {
            Ok(image) => Ok(PullImageResponse { image_ref: image.id }),
            Err(error) => Err(Status::new(pull_code(&error), error.to_string())),
        }
    }

    pub(super) async fn remove_image(&self, request: RemoveImageRequest) -> Result<RemoveImageResponse, Status> {
        let name = request.image.unwrap_or_default().image;
        if name.is_empty() {
            return Err(Status::invalid_argument("the request names no image"));
        }
        let Some(image) = self.images.find(&name) else { return Ok(RemoveImageResponse {}) };
        let used: HashSet<String> = self.list_entries().iter().flat_map(|one| one.used_layers()).collect();
        let images = self.images.clone();
        blocking(move || images.remove(&image.id, &used)).await?.map_err(|error| internal("image", &error))?;
        Ok(RemoveImageResponse {})
    }

    pub(super) async fn image_fs_info(&self, _: ImageFsInfoRequest) -> Result<ImageFsInfoResponse, Status> {
        let (images, containers) = (self.options.root.join("images"), self.options.root.join("containers"));
        let usage = blocking(move || [file_system_usage(&images), file_system_usage(&containers)]).await?;
        let [images, containers] = usage;
        Ok(ImageFsInfoResponse { image_filesystems: vec![images], container_filesystems: vec![containers] })
    }
}

/// The code of a failed pull.
fn pull_code(error: &ImageError) -> Code {
    match error {
        ImageError::NotFound(_) => Code::NotFound,
        ImageError::Pull { source, .. } => pull_code(source),
        _ => Code::Unknown,
    }
}

/// Credentials as the kubelet sends them; none if they are empty.
fn credentials(auth: AuthConfig) -> Result<Option<RegistryCredentials>, Status> {
    if !auth.identity_token.is_empty() || !auth.registry_token.is_empty() || !auth.username.is_empty() {
        let AuthConfig { username, password, registry_token, identity_token, .. } = auth;
        return Ok(Some(RegistryCredentials { username, password, registry_token, identity_token }));
    }
    if auth.auth.is_empty() {
        return Ok(None);
    }
    let invalid = || Status::invalid_argument("the auth field is not base64 of user and password");
    let decoded = BASE64_STANDARD.decode(auth.auth.trim_end_matches('\0')).map_err(|_| invalid())?;
    let text = String::from_utf8(decoded).map_err(|_| invalid())?;
    let (username, password) = text.split_once(':').ok_or_else(invalid)?;
    let password = password.trim_end_matches('\0').to_owned();
    Ok(Some(RegistryCredentials { username: username.to_owned(), password, ..Default::default() }))
}

/// Bytes and files below a path. Files that vanish meanwhile do not count.
pub fn file_system_usage(path: &Path) -> FilesystemUsage {
    let (mut bytes, mut files) = (0, 0);
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            files += 1;
            bytes += found.blocks() * 512;
            if found.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    FilesystemUsage {
        timestamp: now(),
        fs_id: Some(FilesystemIdentifier { mountpoint: path.display().to_string() }),
        used_bytes: Some(UInt64Value { value: bytes }),
        inodes_used: Some(UInt64Value { value: files }),
    }
}

/// Streams of one answer: the kubelet reads lists so if they are long.
pub type SingleAnswer<T> = futures::stream::Once<std::future::Ready<Result<T, Status>>>;

/// A stream with one answer.
pub fn single_answer<T>(answer: T) -> SingleAnswer<T> {
    futures::stream::once(std::future::ready(Ok(answer)))
}

impl RuntimeServer {
    pub(super) async fn stream_images(
        self: &Arc<Self>,
        request: StreamImagesRequest,
    ) -> Result<SingleAnswer<StreamImagesResponse>, Status> {
        let listed = self.list_images(ListImagesRequest { filter: request.filter }).await?;
        Ok(single_answer(StreamImagesResponse { images: listed.images }))
    }
}
