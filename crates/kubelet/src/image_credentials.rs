//! Credentials of image registries: from the pod's pull secrets in both formats, and from the node's `config.json`.
//!
//! An entry matches an image if each part of its host matches, `*` standing for a part or a piece of it, the ports are the
//! same, and its path is a prefix of the image's. Entries with a longer path come first; all that match are tried.

use std::path::Path;

use base64::Engine;
use k8s_openapi::api::core::v1::Secret;
use runtime::cri::types::AuthConfig;
use serde_json::Value;

/// Registry of images without a host.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Credentials by the registries and paths that they are for.
#[derive(Debug, Default)]
pub struct ImageKeyring {
    entries: Vec<(RegistryPattern, AuthConfig)>,
}

/// A registry with a path, such as `*.example.com:5000/team`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryPattern {
    host: Vec<String>,
    port: String,
    path: String,
}

impl RegistryPattern {
    /// Parses a registry with a path; a scheme is left out.
    pub fn parse(text: &str) -> Self {
        let bare = text.trim_start_matches("https://").trim_start_matches("http://");
        let (authority, path) = bare.split_once('/').map_or((bare, ""), |(authority, path)| (authority, path));
        // The path of the version of Docker's own API is none of the images'.
        let path = match path.trim_end_matches('/') {
            "v1" | "v2" => "",
            path => path.strip_prefix("v1/").or_else(|| path.strip_prefix("v2/")).unwrap_or(path),
        };
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let host = if host == "docker.io" || host == "registry-1.docker.io" { DEFAULT_REGISTRY } else { host };
        Self { host: host.split('.').map(str::to_owned).collect(), port: port.into(), path: path.into() }
    }

    /// Whether an entry with this pattern is for an image.
    pub fn matches(&self, image: &RegistryPattern) -> bool {
        self.port == image.port
            && self.host.len() == image.host.len()
            && image.path.starts_with(&self.path)
            && self.host.iter().zip(&image.host).all(|(pattern, part)| matches_glob(pattern, part))
    }
}

/// Matches one part of a host name; `*` stands for any characters, `?` for one.
fn matches_glob(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            let rest = &pattern[1..];
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches_glob(rest, &text[at..]))
        }
        (Some('?'), Some(first)) => matches_glob(&pattern[1..], &text[first.len_utf8()..]),
        (Some(expected), Some(first)) if expected == first => {
            matches_glob(&pattern[expected.len_utf8()..], &text[first.len_utf8()..])
        }
        _ => false,
    }
}

impl ImageKeyring {
    /// Adds the entries of a pull secret; those that cannot be read are left out.
    pub fn add_secret(&mut self, secret: &Secret) {
        let data = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            serde_json::from_slice::<Value>(&bytes.0).ok()
        };
        match secret.type_.as_deref() {
            Some("kubernetes.io/dockerconfigjson") => {
                if let Some(config) = data(".dockerconfigjson") {
                    self.add_entries(&config["auths"]);
                }
            }
            Some("kubernetes.io/dockercfg") => {
                if let Some(config) = data(".dockercfg") {
                    self.add_entries(&config);
                }
            }
            _ => {}
        }
    }

    /// Adds the entries of the node's `config.json`, if there is one. Blocks.
    pub fn add_node_config(&mut self, root_dir: &Path) {
        let config = std::fs::read(root_dir.join("config.json")).ok();
        let config = config.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        if let Some(config) = config {
            self.add_entries(&config["auths"]);
        }
    }

    /// Adds users and passwords by the registries and paths that they are for.
    pub fn add_entries(&mut self, entries: &Value) {
        for (registry, entry) in entries.as_object().into_iter().flatten() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
            let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth").trim()).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
            let (user, password) = decoded.trim_end_matches('\0').split_once(':').unwrap_or_default();
            let or = |given: String, other: &str| if given.is_empty() { other.to_string() } else { given };
            let auth = AuthConfig {
                username: or(text("username"), user),
                password: or(text("password"), password),
                ..Default::default()
            };
            if !auth.username.is_empty() || !auth.password.is_empty() {
                self.entries.push((RegistryPattern::parse(registry), auth));
            }
        }
    }

    /// Returns the credentials for an image, in the order in which they are tried.
    pub fn lookup(&self, image: &str) -> Vec<AuthConfig> {
        let image = RegistryPattern::parse(&with_registry(image));
        let mut found: Vec<_> = self.entries.iter().filter(|(pattern, _)| pattern.matches(&image)).collect();
        found.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.path.len()));
        let mut credentials: Vec<AuthConfig> = Vec::new();
        for (_, auth) in found {
            if !credentials.contains(auth) {
                credentials.push(auth.clone());
            }
        }
        credentials
    }
}

/// Returns the image's repository as Docker names it, without tag and digest: `docker.io/library/nginx`.
pub fn repository_name(image: &str) -> String {
    let name = with_registry(image);
    name.strip_prefix(DEFAULT_REGISTRY).map_or(name.clone(), |path| format!("docker.io{path}"))
}

/// Returns the image with its registry, without tag and digest.
fn with_registry(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let name = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    };
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.into(),
        Some(_) => format!("{DEFAULT_REGISTRY}/{name}"),
        None => format!("{DEFAULT_REGISTRY}/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn secret(kind: &str, key: &str, config: &Value) -> Secret {
        Secret {
            type_: Some(format!("kubernetes.io/{kind}")),
            data: Some([(key.to_string(), ByteString(config.to_string().into_bytes()))].into()),
            ..Default::default()
        }
    }

    fn users(keyring: &ImageKeyring, image: &str) -> Vec<String> {
        keyring.lookup(image).into_iter().map(|auth| auth.username).collect()
    }

    #[test]
    fn both_formats_are_read() {
        let auth = base64::engine::general_purpose::STANDARD.encode("me:secret");
        let mut keyring = ImageKeyring::default();
        let auths = json!({ "https://index.docker.io/v1/": { "auth": auth } });
        keyring.add_secret(&secret("dockerconfigjson", ".dockerconfigjson", &json!({ "auths": auths })));
        let old = json!({ "quay.io": { "username": "old", "password": "p" } });
        keyring.add_secret(&secret("dockercfg", ".dockercfg", &old));
        keyring.add_secret(&secret("Opaque", ".dockercfg", &json!({ "x.io": { "username": "no", "password": "p" } })));
        assert_eq!(users(&keyring, "nginx"), ["me"]);
        assert_eq!(users(&keyring, "docker.io/library/nginx:1"), ["me"]);
        assert_eq!(users(&keyring, "quay.io/a/b@sha256:00"), ["old"]);
        assert!(users(&keyring, "x.io/a").is_empty());
        assert_eq!(keyring.lookup("nginx")[0].password, "secret");
        assert_eq!(
            [repository_name("nginx:1"), repository_name("a.io/b@sha256:0")],
            ["docker.io/library/nginx", "a.io/b"]
        );
    }

    #[test]
    fn longest_path_is_first_and_wildcards_stand_for_one_part() {
        let entry = |user: &str| json!({ "username": user, "password": "p" });
        let auths = json!({ "r.example.com": entry("all"), "r.example.com/team/app": entry("app"),
            "r.example.com/other": entry("other"), "*.example.com": entry("any"), "localhost:5000": entry("local") });
        let mut keyring = ImageKeyring::default();
        keyring.add_secret(&secret("dockerconfigjson", ".dockerconfigjson", &json!({ "auths": auths })));
        let found = users(&keyring, "r.example.com/team/app:1");
        assert_eq!((found[0].as_str(), found.len()), ("app", 3));
        assert!(found.contains(&"any".to_string()) && !found.contains(&"other".to_string()));
        assert_eq!(users(&keyring, "a.b.example.com/x"), Vec::<String>::new());
        assert_eq!(users(&keyring, "localhost:5000/x"), ["local"]);
        assert!(users(&keyring, "localhost:5001/x").is_empty());
        assert!(matches_glob("*a*", "xay") && !matches_glob("?", "xy"));
    }
}
