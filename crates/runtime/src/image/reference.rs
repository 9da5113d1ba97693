//! References of images: `registry/repository:tag@digest`, with Docker's defaults.

use std::fmt;

use super::ImageError;

const DEFAULT_REGISTRY: &str = "docker.io";

/// A reference with its registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageReference {
    /// Host and port of the registry.
    pub registry: String,
    /// The repository.
    pub repository: String,
    /// The tag.
    pub tag: Option<String>,
    /// The digest.
    pub digest: Option<String>,
}

impl ImageReference {
    /// Parses a reference; without registry it is Docker's, without tag and digest it is `latest`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let invalid = || ImageError::Reference(text.into());
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let (registry, repository) = match name.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest.to_owned()),
            Some(_) => (DEFAULT_REGISTRY, name.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{name}")),
        };
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let part = |part: &str| {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(word) && part.ends_with(word) && part.chars().all(|c| word(c) || "._-".contains(c))
        };
        let tag_ok = |tag: &str| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || ".-".contains(c))
        };
        let valid = repository.len() <= 255
            && repository.split('/').all(part)
            && is_registry(registry)
            && tag.is_none_or(tag_ok)
            && digest.is_none_or(is_digest);
        if !valid {
            return Err(invalid());
        }
        let tag = tag.or(if digest.is_none() { Some("latest") } else { None });
        Ok(Self {
            registry: registry.into(),
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// The name without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name with the tag.
    pub fn tagged(&self) -> Option<String> {
        self.tag.as_ref().map(|tag| format!("{}:{tag}", self.name()))
    }

    /// The name with a digest.
    pub fn with_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.name())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tag, &self.digest) {
            (_, Some(digest)) => formatter.write_str(&self.with_digest(digest)),
            (tag, None) => write!(formatter, "{}:{}", self.name(), tag.as_deref().unwrap_or("latest")),
        }
    }
}

/// Whether a text is a host with or without a port; it becomes part of paths and URLs.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let label = |label: &str| {
        let word = |c: char| c.is_ascii_alphanumeric();
        label.starts_with(word) && label.ends_with(word) && label.chars().all(|c| word(c) || c == '-')
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(label),
    };
    is_port && is_host
}

/// Whether a text is a digest that is understood.
pub fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_get_dockers_defaults() {
        let check = |text: &str| ImageReference::parse(text).map(|reference| reference.to_string()).ok();
        assert_eq!(check("nginx").as_deref(), Some("docker.io/library/nginx:latest"));
        assert_eq!(check("a/b:1").as_deref(), Some("docker.io/a/b:1"));
        assert_eq!(check("localhost:5000/a").as_deref(), Some("localhost:5000/a:latest"));
        assert_eq!(check("quay.io/a/b/c:v1.2_3").as_deref(), Some("quay.io/a/b/c:v1.2_3"));
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(check(&format!("a:1@{digest}")), Some(format!("docker.io/library/a@{digest}")));
        for bad in ["", "A", "a b", "a:", "a@sha256:1", "../etc", "x/../y", "a/", "-a", "..:5/a", "a.b:x/c"] {
            assert_eq!(check(bad), None, "{bad}");
        }
    }
}
