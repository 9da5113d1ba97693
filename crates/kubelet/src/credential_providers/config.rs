//! The `CredentialProviderConfig`: which programs know the credentials of which images.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use formats::yaml;
use serde_json::Value;

use crate::image_credentials::RegistryPattern;

/// Versions of the protocol between kubelet and program.
const PROTOCOL_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// A configuration of credential providers cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--image-credential-provider-config: {}: {message}", path.display())]
pub struct CredentialProviderConfigError {
    path: PathBuf,
    message: String,
}

/// One credential provider.
#[derive(Clone, Debug)]
pub struct CredentialProviderSettings {
    /// The name of the program in the directory of programs.
    pub name: String,
    /// The images that it is asked about.
    pub match_images: Vec<RegistryPattern>,
    /// Time for which an answer that names none is kept.
    pub default_cache_duration: Duration,
    /// The version of the protocol.
    pub api_version: String,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Variables of the program beside the kubelet's.
    pub env: Vec<(String, String)>,
}

/// Reads a configuration file, or all `.json`, `.yaml` and `.yml` files of a directory in the order of their names.
pub fn read_credential_providers(
    path: &Path,
) -> Result<Vec<CredentialProviderSettings>, CredentialProviderConfigError> {
    let failed = |path: &Path, message: String| CredentialProviderConfigError { path: path.to_owned(), message };
    let files = config_files(path).map_err(|error| failed(path, error.to_string()))?;
    if files.is_empty() {
        return Err(failed(path, "no configuration files found in the directory".into()));
    }
    let (mut providers, mut names) = (Vec::new(), BTreeSet::new());
    for file in files {
        let text = fs::read(&file).map_err(|error| failed(&file, error.to_string()))?;
        let document = yaml::parse(&text).map_err(|error| failed(&file, error.to_string()))?;
        for provider in parse_config(&document.value).map_err(|message| failed(&file, message))? {
            if !names.insert(provider.name.clone()) {
                return Err(failed(&file, format!("providers.name: Duplicate value: {:?}", provider.name)));
            }
            providers.push(provider);
        }
    }
    Ok(providers)
}

fn config_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let is_config = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.is_file() && matches!(extension, Some("json" | "yaml" | "yml"))
    };
    let mut files: Vec<PathBuf> = fs::read_dir(path)?.flatten().map(|entry| entry.path()).filter(is_config).collect();
    files.sort();
    Ok(files)
}

/// Reads the providers of one file; the text names the field at fault.
fn parse_config(config: &Value) -> Result<Vec<CredentialProviderSettings>, String> {
    let version = config["apiVersion"].as_str().unwrap_or_default();
    if config["kind"] != "CredentialProviderConfig" || !version.starts_with("kubelet.config.k8s.io/") {
        return Err("it must be of apiVersion kubelet.config.k8s.io/v1 and kind CredentialProviderConfig".into());
    }
    let providers: Vec<&Value> = config["providers"].as_array().into_iter().flatten().collect();
    if providers.is_empty() {
        return Err("providers: Required value: at least 1 item in plugins is required".into());
    }
    providers.into_iter().map(parse_provider).collect()
}

fn parse_provider(provider: &Value) -> Result<CredentialProviderSettings, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |name: &str| provider[name].as_array().into_iter().flatten().map(text).collect::<Vec<String>>();
    let name = text(&provider["name"]);
    let is_file_name = !name.contains(['/', ' ']) && !matches!(name.as_str(), "" | "." | "..");
    if !is_file_name {
        return Err(format!("providers.name: Invalid value: {name:?}: it must be the name of a program"));
    }
    let api_version = text(&provider["apiVersion"]);
    if !PROTOCOL_VERSIONS.contains(&api_version.as_str()) {
        let known = PROTOCOL_VERSIONS.map(|version| format!("{version:?}")).join(", ");
        return Err(format!("providers.apiVersion: Unsupported value: {api_version:?}: supported values: {known}"));
    }
    let images = list("matchImages");
    if images.is_empty() {
        return Err("providers.matchImages: Required value: at least 1 item in matchImages is required".into());
    }
    let duration = text(&provider["defaultCacheDuration"]);
    let default_cache_duration = parse_duration(&duration)
        .ok_or_else(|| format!("providers.defaultCacheDuration: Invalid value: {duration:?}: it must be a duration"))?;
    if !provider["tokenAttributes"].is_null() {
        return Err("providers.tokenAttributes is not supported by this kubelet".into());
    }
    let env = provider["env"].as_array().into_iter().flatten();
    Ok(CredentialProviderSettings {
        name,
        match_images: images.iter().map(|image| RegistryPattern::parse(image)).collect(),
        default_cache_duration,
        api_version,
        args: list("args"),
        env: env.map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect(),
    })
}

/// Parses a duration of Go that is not negative.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let nanoseconds = formats::duration::parse(text)?;
    Some(Duration::from_nanos(u64::try_from(nanoseconds).ok()?))
}
