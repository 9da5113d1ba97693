//! `tuning`: sysctls of the container's network namespace, and hardware address, MTU, promiscuous and all-multicast mode
//! and transmit queue length of its interface. DEL restores what the interface had before.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sys::net::{self, NetworkLink};

use super::{
    CniPlugin,
    container_link::{format_mac, in_namespace, parse_mac},
};
use crate::{plugin_error::PluginError, request::CniRequest, result::CniResult};

const DEFAULT_DATA_DIR: &str = "/run/cni/tuning";
/// Patterns of the sysctls that may be set; without the file all of the network may.
const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";
const NETWORK_SYSCTLS: &str = "/proc/sys/net";

pub struct TuningPlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TuningConfig {
    data_dir: Option<PathBuf>,
    #[serde(deserialize_with = "unique_keys")]
    sysctl: BTreeMap<String, String>,
    #[serde(flatten)]
    link: LinkSettings,
    runtime_config: TuningRuntimeConfig,
    args: Option<TuningArguments>,
}

/// Settings of the interface.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct LinkSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    tx_queue_length: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TuningRuntimeConfig {
    mac: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TuningArguments {
    cni: Option<CniArguments>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CniArguments {
    sysctl: BTreeMap<String, String>,
    #[serde(flatten)]
    link: LinkSettings,
}

/// Reads a map whose keys must differ.
fn unique_keys<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct UniqueKeys;
    impl<'de> serde::de::Visitor<'de> for UniqueKeys {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("sysctls and their values")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut keys = BTreeMap::new();
            while let Some((key, value)) = map.next_entry::<String, String>()? {
                if keys.insert(key, value).is_some() {
                    return Err(serde::de::Error::custom("duplicated sysctl keys are not allowed"));
                }
            }
            Ok(keys)
        }
    }
    deserializer.deserialize_any(UniqueKeys)
}

impl TuningConfig {
    fn read(request: &CniRequest) -> Result<Self, PluginError> {
        // From the bytes: a document that was parsed has forgotten repeated keys.
        let mut config: Self = serde_json::from_slice(&request.input).map_err(|error| {
            PluginError::new(PluginError::DECODING_FAILURE, format!("failed to load netconf: {error}"))
        })?;
        let link = &mut config.link;
        let from_arguments = request.arguments.get("MAC").cloned();
        override_with(&mut link.mac, from_arguments);
        override_with(&mut link.mac, config.runtime_config.mac.take().filter(|mac| !mac.is_empty()));
        if let Some(arguments) = config.args.take().and_then(|args| args.cni) {
            config.sysctl.extend(arguments.sysctl);
            override_with(&mut link.mac, arguments.link.mac);
            override_with(&mut link.promisc, arguments.link.promisc);
            override_with(&mut link.mtu, arguments.link.mtu);
            override_with(&mut link.allmulti, arguments.link.allmulti);
            override_with(&mut link.tx_queue_length, arguments.link.tx_queue_length);
        }
        link.mac = link.mac.take().filter(|mac| !mac.is_empty());
        link.mtu = link.mtu.filter(|mtu| *mtu != 0);
        Ok(config)
    }

    fn backup_file(&self, request: &CniRequest) -> PathBuf {
        let directory = self.data_dir.as_deref().unwrap_or(Path::new(DEFAULT_DATA_DIR));
        directory.join(format!("{}_{}.json", request.container_id, request.interface))
    }

    /// The files of the sysctls, and their values.
    fn sysctl_files(&self, interface: &str) -> Result<Vec<(PathBuf, &str)>, PluginError> {
        self.sysctl.iter().map(|(key, value)| Ok((sysctl_file(key, interface)?, value.as_str()))).collect()
    }
}

fn override_with<T>(value: &mut Option<T>, other: Option<T>) {
    if other.is_some() {
        *value = other;
    }
}

/// The file of a sysctl of the network. `IFNAME` in a key stands for the interface.
fn sysctl_file(key: &str, interface: &str) -> Result<PathBuf, PluginError> {
    let key = key.replace('.', "/").replacen("IFNAME", interface, 1);
    let file = Path::new("/proc/sys").join(key.trim_start_matches('/'));
    let leads_out = file.components().any(|part| matches!(part, std::path::Component::ParentDir));
    let is_below = file.strip_prefix(NETWORK_SYSCTLS).is_ok_and(|rest| !rest.as_os_str().is_empty());
    match is_below && !leads_out {
        true => Ok(file),
        false => Err(PluginError::invalid(format!("invalid net sysctl key: {key:?}"))),
    }
}

/// Checks the sysctls against the patterns of the allow-list, if there is one.
fn check_allowed(config: &TuningConfig, list: &Path) -> Result<(), PluginError> {
    let text = match fs::read_to_string(list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(|error| PluginError::io(list.display(), &error))?,
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let patterns: Result<Vec<_>, _> = lines.iter().map(|line| regex_lite::Regex::new(line)).collect();
    let patterns = patterns.map_err(|error| PluginError::invalid(format!("{}: {error}", list.display())))?;
    match config.sysctl.keys().find(|key| !patterns.iter().any(|pattern| pattern.is_match(key))) {
        None => Ok(()),
        Some(key) => Err(PluginError::invalid(format!(
            "Sysctl {key} is not allowed. Only the following sysctls are allowed: [{}]",
            lines.join(" ")
        ))),
    }
}

impl CniPlugin for TuningPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let config = TuningConfig::read(request)?;
        check_allowed(&config, Path::new(ALLOW_LIST))?;
        let mut result =
            request.previous_result()?.ok_or_else(|| PluginError::invalid("Required prevResult missing"))?;
        let sysctls = config.sysctl_files(&request.interface)?;
        let namespace = request.open_namespace()?;
        in_namespace(&namespace, || {
            for (file, value) in &sysctls {
                fs::write(file, value).map_err(|error| PluginError::io(file.display(), &error))?;
            }
            if has_settings(&config.link) {
                let link = find_interface(request)?;
                write_backup(&config.backup_file(request), &config.link, &link)?;
                apply_settings(&link, &config.link)?;
            }
            Ok::<(), PluginError>(())
        })??;
        if let Some(mac) = &config.link.mac {
            let own = result.interfaces.iter_mut().filter(|one| one.name == request.interface);
            own.for_each(|interface| interface.mac.clone_from(mac));
        }
        Ok(result)
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        let config = TuningConfig::read(request)?;
        let file = config.backup_file(request);
        if let Ok(text) = fs::read(&file) {
            if let (Ok(namespace), Ok(settings)) =
                (request.open_namespace(), serde_json::from_slice::<LinkSettings>(&text))
            {
                // The interface goes with the container; what cannot be restored on it is of no consequence.
                let _ = in_namespace(&namespace, || {
                    find_interface(request).and_then(|link| apply_settings(&link, &settings))
                });
            }
            fs::remove_file(&file).map_err(|error| PluginError::io(file.display(), &error))?;
        }
        Ok(())
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let config = TuningConfig::read(request)?;
        request.previous_result()?.ok_or_else(|| PluginError::invalid("Required prevResult missing"))?;
        let sysctls = config.sysctl_files(&request.interface)?;
        let namespace = request.open_namespace()?;
        in_namespace(&namespace, || {
            for (file, value) in &sysctls {
                let text = fs::read_to_string(file).map_err(|error| PluginError::io(file.display(), &error))?;
                expect_equal(&file.display().to_string(), *value, text.trim_end_matches('\n'))?;
            }
            let link = find_interface(request)?;
            check_settings(&link, &config.link)
        })?
    }
}

fn find_interface(request: &CniRequest) -> Result<NetworkLink, PluginError> {
    net::link_by_name(&request.interface)
        .map_err(|error| PluginError::io(format_args!("failed to get {:?}", request.interface), &error))
}

fn has_settings(settings: &LinkSettings) -> bool {
    let LinkSettings { mac, promisc, mtu, allmulti, tx_queue_length } = settings;
    let numbers = mtu.is_some() || tx_queue_length.is_some();
    mac.is_some() || *promisc == Some(true) || allmulti.is_some() || numbers
}

/// Keeps what the interface has of the settings that will change.
fn write_backup(file: &Path, settings: &LinkSettings, link: &NetworkLink) -> Result<(), PluginError> {
    let backup = LinkSettings {
        mac: settings.mac.as_ref().and(link.mac).map(format_mac),
        promisc: settings.promisc.filter(|on| *on).map(|_| link.promiscuous),
        mtu: settings.mtu.map(|_| link.mtu),
        allmulti: settings.allmulti.map(|_| link.all_multicast),
        tx_queue_length: settings.tx_queue_length.map(|_| link.tx_queue_length),
    };
    let directory = file.parent().unwrap_or(Path::new("/"));
    let text = serde_json::to_vec(&backup).unwrap_or_default();
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(file, text))
        .map_err(|error| PluginError::io(file.display(), &error))
}

fn apply_settings(link: &NetworkLink, settings: &LinkSettings) -> Result<(), PluginError> {
    let failed = |what: &str, error: io::Error| PluginError::io(format_args!("{what} of {}", link.name), &error);
    if let Some(text) = &settings.mac {
        let mac = parse_mac(text).ok_or_else(|| PluginError::invalid(format!("invalid args {text} for MAC addr")))?;
        net::set_mac(link.index, mac).map_err(|error| failed("hardware address", error))?;
    }
    if let Some(on) = settings.promisc {
        net::set_promiscuous(link.index, on).map_err(|error| failed("promiscuous mode", error))?;
    }
    if let Some(mtu) = settings.mtu {
        net::set_mtu(link.index, mtu).map_err(|error| failed("MTU", error))?;
    }
    if let Some(on) = settings.allmulti {
        net::set_all_multicast(link.index, on).map_err(|error| failed("all-multicast mode", error))?;
    }
    if let Some(length) = settings.tx_queue_length {
        net::set_tx_queue_length(link.index, length).map_err(|error| failed("transmit queue length", error))?;
    }
    Ok(())
}

fn check_settings(link: &NetworkLink, settings: &LinkSettings) -> Result<(), PluginError> {
    if let Some(mac) = &settings.mac {
        expect_equal(
            &format!("Ethernet of {}", link.name),
            mac.to_lowercase(),
            link.mac.map(format_mac).unwrap_or_default(),
        )?;
    }
    expect_equal(&format!("promisc of {}", link.name), settings.promisc == Some(true), link.promiscuous)?;
    if let Some(mtu) = settings.mtu {
        expect_equal(&format!("MTU of {}", link.name), mtu, link.mtu)?;
    }
    if let Some(on) = settings.allmulti {
        expect_equal(&format!("all-multicast mode of {}", link.name), on, link.all_multicast)?;
    }
    if let Some(length) = settings.tx_queue_length {
        expect_equal(&format!("Transmit Queue Length of {}", link.name), length, link.tx_queue_length)?;
    }
    Ok(())
}

fn expect_equal<T: PartialEq<U> + std::fmt::Display, U: std::fmt::Display>(
    what: &str,
    configured: T,
    current: U,
) -> Result<(), PluginError> {
    match configured == current {
        true => Ok(()),
        false => Err(PluginError::mismatch(format!(
            "Error: Tuning configured value of {what} is {configured}, current value is {current}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_sysctls_are_accepted() {
        let file = |key: &str| sysctl_file(key, "eth0").map(|file| file.display().to_string());
        assert_eq!(file("net.ipv4.conf.IFNAME.arp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0/arp_filter");
        assert_eq!(file("net/core/somaxconn").unwrap(), "/proc/sys/net/core/somaxconn");
        for key in ["kernel.shmmax", "net", "/etc/passwd", ""] {
            assert!(file(key).is_err(), "{key}");
        }
    }

    #[test]
    fn repeated_sysctls_are_refused() {
        let read = |text: &str| serde_json::from_str::<TuningConfig>(text);
        assert_eq!(read(r#"{"sysctl":{"net.a":"1","net.b":"2"}}"#).unwrap().sysctl.len(), 2);
        assert!(read(r#"{"sysctl":{"net.a":"1","net.a":"2"}}"#).is_err());
        assert!(read(r#"{"sysctl":null}"#).unwrap().sysctl.is_empty());
    }

    #[test]
    fn allow_list_has_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("allowlist.conf");
        let config: TuningConfig =
            serde_json::from_str(r#"{"sysctl":{"net.ipv4.conf.all.log_martians":"1"}}"#).unwrap();
        assert!(check_allowed(&config, &file).is_ok(), "without a list everything is allowed");
        for (patterns, is_allowed) in [("^net.ipv4.conf.(all|eth0).*$\n", true), ("^net.core.*$\n\n", false)] {
            fs::write(&file, patterns).unwrap();
            assert_eq!(check_allowed(&config, &file).is_ok(), is_allowed, "{patterns}");
        }
    }
}
