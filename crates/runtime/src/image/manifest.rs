//! Manifests, indexes and configurations, OCI's and Docker's.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ImageError, reference::is_digest};

/// Media types of manifests that are asked for.
pub const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
/// The largest manifest or configuration.
pub const LARGEST_DOCUMENT: u64 = 8 << 20;
/// Most layers of an image.
const MOST_LAYERS: usize = 500;

/// A reference to content.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type.
    #[serde(default)]
    pub media_type: String,
    /// The digest.
    pub digest: String,
    /// Bytes.
    #[serde(default)]
    pub size: u64,
    /// For which platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Annotations, such as the name in an archive.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub annotations: HashMap<String, String>,
}

/// A platform.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Platform {
    /// The architecture, in Go's words.
    pub architecture: String,
    /// The operating system.
    pub os: String,
    /// The variant of the architecture.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

/// A manifest or an index.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ManifestDocument {
    /// The media type.
    pub media_type: String,
    /// The configuration, of a manifest.
    pub config: Option<Descriptor>,
    /// The layers, of a manifest.
    pub layers: Vec<Descriptor>,
    /// The manifests, of an index.
    pub manifests: Vec<Descriptor>,
    /// The version of the format; 1 is not supported.
    pub schema_version: u32,
}

impl ManifestDocument {
    /// Parses a document.
    pub fn parse(text: &[u8]) -> Result<Self, ImageError> {
        let document: Self =
            serde_json::from_slice(text).map_err(|error| ImageError::Invalid(format!("invalid manifest: {error}")))?;
        if document.schema_version == 1 {
            return Err(ImageError::Invalid("manifests of Docker's schema 1 are not supported".into()));
        }
        let all = document.config.iter().chain(&document.layers).chain(&document.manifests);
        if let Some(wrong) = all.map(|one| &one.digest).find(|digest| !is_digest(digest)) {
            return Err(ImageError::Invalid(format!("invalid manifest: {wrong:?} is not a sha256 digest")));
        }
        if document.layers.len() > MOST_LAYERS {
            return Err(ImageError::Invalid(format!("the image has {} layers", document.layers.len())));
        }
        Ok(document)
    }

    /// The manifest of an index for this machine.
    pub fn select_platform(&self) -> Option<&Descriptor> {
        let architecture = architecture();
        let fits = |one: &&Descriptor| {
            one.platform.as_ref().is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture)
        };
        let exact = self.manifests.iter().filter(|one| one.platform.is_some()).find(fits);
        exact.or_else(|| self.manifests.iter().find(fits))
    }
}

/// This machine's architecture, in Go's words.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The configuration of an image.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The architecture.
    pub architecture: String,
    /// The operating system.
    pub os: String,
    /// The defaults of containers.
    pub config: Option<ImageProcessConfig>,
    /// The layers.
    pub rootfs: LayerDigests,
}

/// The defaults that an image has for its containers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ImageProcessConfig {
    /// User and group.
    pub user: String,
    /// Variables.
    pub env: Option<Vec<String>>,
    /// The first words of the command.
    pub entrypoint: Option<Vec<String>>,
    /// The last words of the command.
    pub cmd: Option<Vec<String>>,
    /// The working directory.
    pub working_dir: String,
    /// Paths of volumes.
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
    /// The signal that ends the program.
    pub stop_signal: String,
    /// Labels.
    pub labels: Option<HashMap<String, String>>,
}

/// Digests of uncompressed layers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LayerDigests {
    /// The digests, the lowest first.
    pub diff_ids: Vec<String>,
}

impl ImageConfig {
    /// Parses a configuration.
    pub fn parse(text: &[u8]) -> Result<Self, ImageError> {
        serde_json::from_slice(text)
            .map_err(|error| ImageError::Invalid(format!("invalid image configuration: {error}")))
    }

    /// The chain ids of the layers: each stands for a layer with all below it.
    pub fn chain_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for diff in &self.rootfs.diff_ids {
            let id = match ids.last() {
                None => diff.clone(),
                Some(below) => digest_of(format!("{below} {diff}").as_bytes()),
            };
            ids.push(id);
        }
        ids
    }
}

/// The digest of bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    format_digest(&Sha256::digest(bytes))
}

/// Formats a digest.
pub fn format_digest(hash: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in hash {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
