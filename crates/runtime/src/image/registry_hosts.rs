//! Which servers are asked for a registry: containerd's `hosts.toml` layout.

use std::path::Path;

use super::ImageError;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryHost {
    /// The URL without a path, or with one that replaces `/v2`.
    pub url: String,
    /// Whether certificates are not checked.
    pub skips_verification: bool,
    /// Files of further authorities.
    pub authorities: Vec<String>,
    /// Whether it is a mirror, which needs to be told the registry.
    pub is_mirror: bool,
}

/// Returns the servers for a registry, mirrors first.
pub fn registry_hosts(directory: Option<&Path>, registry: &str) -> Result<Vec<RegistryHost>, ImageError> {
    let mut hosts = Vec::new();
    let mut server = default_url(registry);
    for name in [registry, "_default"] {
        let Some(path) = directory.map(|directory| directory.join(name).join("hosts.toml")) else { break };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let invalid = |error: toml::de::Error| ImageError::Registry(format!("{}: {error}", path.display()));
        let table: toml::Table = text.parse().map_err(invalid)?;
        if let Some(named) = table.get("server").and_then(toml::Value::as_str) {
            server = with_scheme(named);
        }
        // The file's order counts, which a table does not keep.
        let mut named: Vec<(usize, RegistryHost)> = Vec::new();
        for (url, settings) in table.get("host").and_then(toml::Value::as_table).into_iter().flatten() {
            let position = text.find(&format!("\"{url}\"")).unwrap_or(usize::MAX);
            named.push((position, parse_host(url, settings)));
        }
        named.sort_by_key(|(position, _)| *position);
        hosts.extend(named.into_iter().map(|(_, host)| host));
        break;
    }
    let mut is_listed = false;
    // The registry itself may be listed, for its authority or its place among the mirrors.
    for host in hosts.iter_mut().filter(|host| host.url == server) {
        (host.is_mirror, is_listed) = (false, true);
    }
    if !is_listed {
        hosts.push(RegistryHost { url: server, skips_verification: false, authorities: Vec::new(), is_mirror: false });
    }
    Ok(hosts)
}

fn parse_host(url: &str, settings: &toml::Value) -> RegistryHost {
    let texts = |value: &toml::Value| match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Array(list) => list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    RegistryHost {
        url: with_scheme(url).trim_end_matches('/').to_owned(),
        skips_verification: settings.get("skip_verify").and_then(toml::Value::as_bool).unwrap_or(false),
        authorities: settings.get("ca").map(texts).unwrap_or_default(),
        is_mirror: true,
    }
}

fn with_scheme(host: &str) -> String {
    if host.contains("://") { host.trim_end_matches('/').to_owned() } else { default_url(host) }
}

/// Docker's registry has another name; this machine's needs no TLS.
fn default_url(registry: &str) -> String {
    let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = name == "localhost" || name.starts_with("127.") || name == "[::1]";
    format!("{}://{host}", if is_local { "http" } else { "https" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_before_the_registry() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("_default")).unwrap();
        let text = "[host.\"http://127.0.0.1:5000\"]\n  capabilities = [\"pull\"]\n[host.\"https://a.example\"]\nskip_verify = true\n";
        std::fs::write(dir.path().join("_default/hosts.toml"), text).unwrap();
        let urls = |registry: &str| -> Vec<String> {
            registry_hosts(Some(dir.path()), registry).unwrap().into_iter().map(|host| host.url).collect()
        };
        assert_eq!(urls("docker.io"), ["http://127.0.0.1:5000", "https://a.example", "https://registry-1.docker.io"]);
        let listed = registry_hosts(Some(dir.path()), "a.example").unwrap();
        assert_eq!(listed.iter().map(|host| host.is_mirror).collect::<Vec<_>>(), [true, false]);
        assert_eq!(registry_hosts(None, "localhost:5000").unwrap()[0].url, "http://localhost:5000");
        assert_eq!(registry_hosts(None, "quay.io").unwrap()[0].url, "https://quay.io");
    }
}
