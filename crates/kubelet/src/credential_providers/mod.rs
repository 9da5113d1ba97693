//! Credential providers: programs that know the credentials of image registries, asked before an image is pulled.
//!
//! A program gets a `CredentialProviderRequest` on standard input and answers with a `CredentialProviderResponse`. Answers
//! are kept for as long as they say, by image, by registry, or for all images. A program that fails is logged and gives no
//! credentials.

mod config;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    sync::Mutex,
    time::{Instant, timeout},
};

pub use config::{CredentialProviderConfigError, CredentialProviderSettings, read_credential_providers};

use crate::image_credentials::{ImageKeyring, RegistryPattern, repository_name};

/// Time that a program has to answer.
const EXECUTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of answers of one program that are kept.
const MOST_CACHED_ANSWERS: usize = 1000;

/// A credential provider gave no credentials.
#[derive(Debug, thiserror::Error)]
enum CredentialProviderError {
    #[error("{}: {source}", path.display())]
    Execution { path: PathBuf, source: io::Error },
    #[error("it did not answer within {} s", EXECUTION_TIMEOUT.as_secs())]
    Timeout,
    #[error("it ended with {status}: {stderr}")]
    Failed { status: std::process::ExitStatus, stderr: String },
    // The answer is not shown: it may hold credentials.
    #[error("error decoding credential provider plugin response from stdout")]
    InvalidResponse,
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    OtherVersion { expected: String, actual: String },
    #[error("credential provider plugin did not return a valid cacheKeyType: {0}")]
    InvalidCacheKey(String),
}

/// The credential providers of the node.
#[derive(Default)]
pub struct CredentialProviders {
    bin_dir: PathBuf,
    providers: Vec<CredentialProvider>,
}

struct CredentialProvider {
    settings: CredentialProviderSettings,
    /// Kept answers. Held while the program runs, so that it is asked once.
    answers: Mutex<HashMap<CacheKey, CachedAnswer>>,
}

/// The images for which an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CacheKey {
    Image(String),
    Registry(String),
    Global,
}

struct CachedAnswer {
    auth: Value,
    expires: Instant,
}

impl CredentialProviders {
    /// Providers whose programs are in `bin_dir`.
    pub fn new(bin_dir: &Path, settings: &[CredentialProviderSettings]) -> Self {
        let provider = |settings: &CredentialProviderSettings| CredentialProvider {
            settings: settings.clone(),
            answers: Mutex::default(),
        };
        Self { bin_dir: bin_dir.to_owned(), providers: settings.iter().map(provider).collect() }
    }

    /// Adds the credentials that the providers know for an image.
    pub async fn add_credentials(&self, image: &str, keyring: &mut ImageKeyring) {
        let repository = repository_name(image);
        let pattern = RegistryPattern::parse(&repository);
        for provider in &self.providers {
            if !provider.settings.match_images.iter().any(|images| images.matches(&pattern)) {
                continue;
            }
            match provider.credentials(&self.bin_dir, &repository).await {
                Ok(auth) => keyring.add_entries(&auth),
                Err(error) => {
                    let name = &provider.settings.name;
                    tracing::warn!(provider = name, image, %error, "credential provider: no credentials, pulling without");
                }
            }
        }
    }
}

impl CredentialProvider {
    /// Returns user names and passwords by the images that they are for.
    async fn credentials(&self, bin_dir: &Path, image: &str) -> Result<Value, CredentialProviderError> {
        let mut answers = self.answers.lock().await;
        let now = Instant::now();
        answers.retain(|_, answer| answer.expires > now);
        let registry = image.split('/').next().unwrap_or_default();
        let keys = [CacheKey::Image(image.into()), CacheKey::Registry(registry.into()), CacheKey::Global];
        if let Some(kept) = keys.iter().find_map(|key| answers.get(key)) {
            return Ok(kept.auth.clone());
        }
        let response = self.ask_program(bin_dir, image).await?;
        let [by_image, by_registry, global] = keys;
        let key = match response["cacheKeyType"].as_str().unwrap_or_default() {
            "Image" => by_image,
            "Registry" => by_registry,
            "Global" => global,
            other => return Err(CredentialProviderError::InvalidCacheKey(other.to_owned())),
        };
        let duration = match &response["cacheDuration"] {
            Value::Null => self.settings.default_cache_duration,
            text => text.as_str().and_then(config::parse_duration).ok_or(CredentialProviderError::InvalidResponse)?,
        };
        let auth = response["auth"].clone();
        if !duration.is_zero() && answers.len() < MOST_CACHED_ANSWERS {
            answers.insert(key, CachedAnswer { auth: auth.clone(), expires: now + duration });
        }
        Ok(auth)
    }

    /// Runs the program with a request.
    async fn ask_program(&self, bin_dir: &Path, image: &str) -> Result<Value, CredentialProviderError> {
        let (settings, path) = (&self.settings, bin_dir.join(&self.settings.name));
        let request =
            json!({ "kind": "CredentialProviderRequest", "apiVersion": settings.api_version, "image": image });
        let failed = |source| CredentialProviderError::Execution { path: path.clone(), source };
        let mut command = Command::new(&path);
        command.args(&settings.args).envs(settings.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let answer = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input may answer all the same.
                let _ = stdin.write_all(request.to_string().as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = timeout(EXECUTION_TIMEOUT, answer).await.map_err(|_| CredentialProviderError::Timeout)?;
        let output = output.map_err(failed)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(CredentialProviderError::Failed { status: output.status, stderr });
        }
        let response: Value =
            serde_json::from_slice(&output.stdout).map_err(|_| CredentialProviderError::InvalidResponse)?;
        let version = response["apiVersion"].as_str().unwrap_or_default();
        if version != settings.api_version {
            let (expected, actual) = (settings.api_version.clone(), version.to_owned());
            return Err(CredentialProviderError::OtherVersion { expected, actual });
        }
        if response["kind"] != "CredentialProviderResponse" {
            return Err(CredentialProviderError::InvalidResponse);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests;
