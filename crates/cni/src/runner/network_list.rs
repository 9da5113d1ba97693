//! Configurations of networks: files `*.conflist`, `*.conf` and `*.json` of a directory; the first valid one counts.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::CniError;
use crate::version::SUPPORTED;

/// A network with its plug-ins.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkList {
    /// The name.
    pub name: String,
    /// The version that runtime and plug-ins speak.
    pub version: String,
    /// The configurations of the plug-ins, in order.
    pub plugins: Vec<Value>,
    /// Whether CHECK is not called.
    pub disables_check: bool,
    /// Whether GC is not called.
    pub disables_gc: bool,
}

/// Loads the first valid configuration of a directory.
///
/// # Errors
/// There is none; the message names the first problem, as runtimes report it.
pub fn load_network(directory: &Path) -> Result<NetworkList, CniError> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "conf" || kind == "conflist" || kind == "json"))
        .collect();
    files.sort();
    let mut problem = None;
    for file in files {
        let parsed = fs::read(&file).map_err(|error| error.to_string()).and_then(|text| parse_network(&text));
        match parsed {
            Ok(network) => return Ok(network),
            Err(error) => {
                problem.get_or_insert_with(|| format!("{}: {error}", file.display()));
            }
        }
    }
    Err(CniError::NoNetwork(
        problem.unwrap_or_else(|| {
            format!("no network config found in {}: cni plugin not initialized", directory.display())
        }),
    ))
}

fn parse_network(text: &[u8]) -> Result<NetworkList, String> {
    let config: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let name = config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err("missing network name".into());
    }
    let plugins = match config.get("plugins") {
        Some(plugins) => plugins.as_array().cloned().ok_or("plugins is not a list")?,
        None => vec![config.clone()],
    };
    if plugins.is_empty() || plugins.iter().any(|plugin| plugin.get("type").and_then(Value::as_str).is_none()) {
        return Err("a plugin has no type".into());
    }
    let flag =
        |name: &str| matches!(config.get(name), Some(Value::Bool(true))) || config.get(name) == Some(&json!("true"));
    Ok(NetworkList {
        name,
        version: choose_version(&config)?,
        plugins,
        disables_check: flag("disableCheck"),
        disables_gc: flag("disableGC"),
    })
}

/// The newest version that the configuration allows and this runner speaks.
fn choose_version(config: &Value) -> Result<String, String> {
    let single = config.get("cniVersion").and_then(Value::as_str);
    let listed = config.get("cniVersions").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let all: Vec<&str> = single.into_iter().chain(listed).filter(|version| !version.is_empty()).collect();
    if all.is_empty() {
        return Ok("0.1.0".into());
    }
    let known = SUPPORTED.iter().rev().filter(|known| !known.is_empty()).find(|known| all.contains(known));
    known.map(|version| (*version).to_owned()).ok_or_else(|| format!("no version of {all:?} is supported"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_valid_configuration_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(load_network(dir.path()), Err(CniError::NoNetwork(_))));
        fs::write(dir.path().join("05-bad.conflist"), "{").unwrap();
        fs::write(dir.path().join("10-a.conf"), r#"{"cniVersion":"0.3.1","name":"a","type":"ptp"}"#).unwrap();
        fs::write(
            dir.path().join("20-b.conflist"),
            r#"{"cniVersions":["0.4.0","1.1.0","9.0.0"],"name":"b","plugins":[{"type":"x"}],"disableGC":true}"#,
        )
        .unwrap();
        let network = load_network(dir.path()).unwrap();
        assert_eq!((network.name.as_str(), network.version.as_str(), network.plugins.len()), ("a", "0.3.1", 1));
        fs::remove_file(dir.path().join("10-a.conf")).unwrap();
        let network = load_network(dir.path()).unwrap();
        assert_eq!((network.version.as_str(), network.disables_gc, network.disables_check), ("1.1.0", true, false));
    }
}
