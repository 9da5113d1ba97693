//! The runtime's side of CNI: finds networks, calls the plug-ins of each, and keeps what they return.
//!
//! Plug-ins are programs; one that is this program itself under its name is called in this process, with the same input and
//! the same answer.

mod network_list;
mod plugin_call;

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

pub use network_list::{NetworkList, load_network};
pub use plugin_call::CniError;

use crate::{request::CniCommand, result::CniResult, version};
use plugin_call::{PluginCall, call_plugin};

/// The container and interface that plug-ins are called for.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    /// The container.
    pub container_id: String,
    /// The path of its network namespace; empty if it is gone.
    pub namespace: String,
    /// The name of the interface.
    pub interface: String,
    /// `CNI_ARGS`.
    pub arguments: Vec<(String, String)>,
    /// Values of capabilities, such as `portMappings`, for plug-ins that ask for them.
    pub capabilities: BTreeMap<String, Value>,
}

/// Calls plug-ins.
#[derive(Clone, Debug)]
pub struct CniRunner {
    /// Directories of plug-ins.
    pub plugin_directories: Vec<PathBuf>,
    /// The directory of results.
    pub cache: PathBuf,
}

impl CniRunner {
    /// Attaches a container to a network; returns the addresses. A failure detaches what was attached.
    pub fn add(&self, network: &NetworkList, attachment: &Attachment) -> Result<Vec<IpAddr>, CniError> {
        let mut previous: Option<Value> = None;
        for plugin in &network.plugins {
            match self.call(network, plugin, CniCommand::Add, attachment, previous.as_ref()) {
                Ok(Some(result)) => previous = Some(result),
                Ok(None) => {}
                Err(error) => {
                    // What is half made is undone; the first error is what matters.
                    let _ = self.delete(network, attachment);
                    return Err(error);
                }
            }
        }
        let result = previous.unwrap_or_else(|| json!({ "cniVersion": network.version }));
        self.write_cache(network, attachment, &result)?;
        let parsed =
            CniResult::from_value(&result).map_err(|error| CniError::Plugin { plugin: network.name.clone(), error })?;
        Ok(parsed.ips.iter().map(|ip| ip.address.address).collect())
    }

    /// Detaches a container; everything is tried, the first error is returned.
    pub fn delete(&self, network: &NetworkList, attachment: &Attachment) -> Result<(), CniError> {
        let cached = self.read_cache(network, attachment);
        // Plug-ins before 0.4.0 get no result in DEL.
        let previous = cached.filter(|_| version::is_at_least(&network.version, "0.4.0"));
        let mut first = Ok(());
        for plugin in network.plugins.iter().rev() {
            let called = self.call(network, plugin, CniCommand::Delete, attachment, previous.as_ref()).map(drop);
            first = first.and(called);
        }
        if first.is_ok() {
            // A runtime that was killed while it wrote the result left the unfinished file.
            for path in [self.unfinished_path(attachment), self.cache_path(network, attachment)] {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CniError::Cache(error)),
                    _ => {}
                }
            }
        }
        first
    }

    /// Checks an attachment.
    pub fn check(&self, network: &NetworkList, attachment: &Attachment) -> Result<(), CniError> {
        if network.disables_check || !version::is_at_least(&network.version, "0.4.0") {
            return Ok(());
        }
        let Some(previous) = self.read_cache(network, attachment) else {
            return Err(CniError::NotAttached(attachment.container_id.clone()));
        };
        let call = |plugin| self.call(network, plugin, CniCommand::Check, attachment, Some(&previous)).map(drop);
        network.plugins.iter().try_for_each(call)
    }

    /// Whether a network is ready for attachments; plug-ins before 1.1.0 are.
    pub fn status(&self, network: &NetworkList) -> Result<(), CniError> {
        if !version::is_at_least(&network.version, "1.1.0") {
            return network.plugins.iter().try_for_each(|plugin| self.find_plugin(plugin).map(drop));
        }
        let none = Attachment::default();
        let call = |plugin| self.call(network, plugin, CniCommand::Status, &none, None).map(drop);
        network.plugins.iter().try_for_each(call)
    }

    /// Removes what plug-ins keep of containers that are not among `valid` (container and interface).
    pub fn collect_garbage(&self, network: &NetworkList, valid: &[(String, String)]) -> Result<(), CniError> {
        for (container_id, interface) in self.cached_attachments(network) {
            if !valid.contains(&(container_id.clone(), interface.clone())) {
                let attachment = Attachment { container_id, interface, ..Default::default() };
                self.delete(network, &attachment)?;
            }
        }
        if network.disables_gc || !version::is_at_least(&network.version, "1.1.0") {
            return Ok(());
        }
        let valid: Vec<Value> = valid
            .iter()
            .map(|(container, interface)| json!({ "containerID": container, "ifname": interface }))
            .collect();
        let none = Attachment::default();
        for plugin in &network.plugins {
            let mut plugin = plugin.clone();
            plugin["cni.dev/valid-attachments"] = valid.clone().into();
            self.call(network, &plugin, CniCommand::GarbageCollect, &none, None)?;
        }
        Ok(())
    }

    fn call(
        &self,
        network: &NetworkList,
        plugin: &Value,
        command: CniCommand,
        attachment: &Attachment,
        previous: Option<&Value>,
    ) -> Result<Option<Value>, CniError> {
        let mut config = plugin.clone();
        config["name"] = network.name.clone().into();
        config["cniVersion"] = network.version.clone().into();
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        let wanted = plugin.get("capabilities").and_then(Value::as_object);
        let runtime: serde_json::Map<String, Value> = attachment
            .capabilities
            .iter()
            .filter(|(name, _)| wanted.is_some_and(|wanted| wanted.get(*name) == Some(&Value::Bool(true))))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !runtime.is_empty() {
            config["runtimeConfig"] = runtime.into();
        }
        if let Some(config) = config.as_object_mut() {
            config.remove("capabilities");
        }
        let arguments: Vec<String> =
            attachment.arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let program = self.find_plugin(plugin)?;
        let call = PluginCall {
            program: &program,
            command,
            environment: vec![
                ("CNI_COMMAND", command.name().to_owned()),
                ("CNI_CONTAINERID", attachment.container_id.clone()),
                ("CNI_NETNS", attachment.namespace.clone()),
                ("CNI_IFNAME", attachment.interface.clone()),
                ("CNI_ARGS", arguments.join(";")),
                ("CNI_PATH", join_paths(&self.plugin_directories)),
            ],
            input: config.to_string().into_bytes(),
        };
        call_plugin(&call)
    }

    fn find_plugin(&self, plugin: &Value) -> Result<PathBuf, CniError> {
        let name = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let found = self.plugin_directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
        found
            .filter(|_| !name.is_empty() && !name.contains('/'))
            .ok_or_else(|| CniError::NoPlugin { plugin: name.into(), path: join_paths(&self.plugin_directories) })
    }

    fn cache_path(&self, network: &NetworkList, attachment: &Attachment) -> PathBuf {
        self.cache.join(format!("{}-{}-{}", network.name, attachment.container_id, attachment.interface))
    }

    /// The path of a result while it is written.
    fn unfinished_path(&self, attachment: &Attachment) -> PathBuf {
        self.cache.join(format!(".{}-{}", attachment.container_id, attachment.interface))
    }

    fn write_cache(&self, network: &NetworkList, attachment: &Attachment, result: &Value) -> Result<(), CniError> {
        let cached = json!({
            "kind": "cniCacheV1",
            "containerId": attachment.container_id,
            "ifName": attachment.interface,
            "networkName": network.name,
            "netns": attachment.namespace,
            "cniArgs": attachment.arguments,
            "capabilityArgs": attachment.capabilities,
            "result": result,
        });
        let path = self.cache_path(network, attachment);
        let temporary = self.unfinished_path(attachment);
        fs::create_dir_all(&self.cache)
            .and_then(|()| fs::write(&temporary, cached.to_string()))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(CniError::Cache)
    }

    fn read_cache(&self, network: &NetworkList, attachment: &Attachment) -> Option<Value> {
        let text = fs::read(self.cache_path(network, attachment)).ok()?;
        let cached: Value = serde_json::from_slice(&text).ok()?;
        cached.get("result").cloned()
    }

    fn cached_attachments(&self, network: &NetworkList) -> Vec<(String, String)> {
        let entries = fs::read_dir(&self.cache).into_iter().flatten().flatten();
        let read = |path: &Path| -> Option<(String, String)> {
            let cached: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            let text = |key: &str| cached.get(key).and_then(Value::as_str).map(str::to_owned);
            (text("networkName")? == network.name).then_some((text("containerId")?, text("ifName")?))
        };
        entries.filter_map(|entry| read(&entry.path())).collect()
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_removes_finished_and_unfinished_results() {
        let directory = tempfile::tempdir().unwrap();
        let runner = CniRunner { plugin_directories: Vec::new(), cache: directory.path().to_owned() };
        let network = NetworkList {
            name: "net".into(),
            version: "1.0.0".into(),
            plugins: Vec::new(),
            disables_check: false,
            disables_gc: false,
        };
        let attachment = Attachment { container_id: "c".into(), interface: "eth0".into(), ..Attachment::default() };
        runner.add(&network, &attachment).unwrap();
        fs::write(runner.unfinished_path(&attachment), "{").unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        runner.delete(&network, &attachment).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
