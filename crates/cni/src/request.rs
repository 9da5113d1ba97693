//! A request to a plug-in: command, container, namespace, interface and configuration.

use std::{collections::HashMap, path::PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use sys::netns::NetworkNamespace;

use crate::{
    plugin_error::PluginError,
    result::CniResult,
    version::{self, SUPPORTED},
};

/// The longest name of an interface.
const LONGEST_INTERFACE: usize = 15;

/// Command of a request (`CNI_COMMAND`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CniCommand {
    Add,
    Delete,
    Check,
    GarbageCollect,
    Status,
    Version,
}

impl CniCommand {
    pub fn from_environment(variable: &impl Fn(&str) -> Option<String>) -> Result<Self, PluginError> {
        match variable("CNI_COMMAND").as_deref() {
            Some("ADD") => Ok(Self::Add),
            Some("DEL") => Ok(Self::Delete),
            Some("CHECK") => Ok(Self::Check),
            Some("GC") => Ok(Self::GarbageCollect),
            Some("STATUS") => Ok(Self::Status),
            Some("VERSION") => Ok(Self::Version),
            Some(other) => {
                Err(PluginError::new(PluginError::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {other}")))
            }
            None => Err(missing_variables(&["CNI_COMMAND"])),
        }
    }

    /// The name in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Delete => "DEL",
            Self::Check => "CHECK",
            Self::GarbageCollect => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// Whether the command is about one attachment.
    fn has_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Delete | Self::Check)
    }
}

/// A request.
#[derive(Debug)]
pub struct CniRequest {
    pub command: CniCommand,
    pub container_id: String,
    /// The path of the network namespace; empty in a DEL whose namespace is gone.
    pub namespace: String,
    pub interface: String,
    /// `CNI_ARGS`, pairs of names and values.
    pub arguments: HashMap<String, String>,
    /// Directories of plug-ins.
    pub path: Vec<PathBuf>,
    /// The configuration as it is.
    pub config: Value,
    /// The configuration's bytes, for plug-ins that are called in turn.
    pub input: Vec<u8>,
    pub version: String,
    /// The network's name.
    pub network: String,
    /// `CNI_ARGS` as it is.
    pub raw_arguments: String,
}

impl CniRequest {
    /// Reads environment and configuration.
    pub fn parse(
        command: CniCommand,
        input: &[u8],
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PluginError> {
        let config: Value = serde_json::from_slice(input).map_err(|error| {
            PluginError::new(PluginError::DECODING_FAILURE, format!("error unmarshall network config: {error}"))
        })?;
        let version = version::version_of_input(input);
        if !SUPPORTED.contains(&version.as_str()) {
            return Err(PluginError::new(
                PluginError::INCOMPATIBLE_VERSION,
                format!("incompatible CNI versions; config is {version:?}, plugin supports {:?}", &SUPPORTED[..7]),
            ));
        }
        let read = |name: &str| variable(name).unwrap_or_default();
        let request = Self {
            command,
            container_id: read("CNI_CONTAINERID"),
            namespace: read("CNI_NETNS"),
            interface: read("CNI_IFNAME"),
            arguments: parse_arguments(&read("CNI_ARGS"))?,
            path: std::env::split_paths(&read("CNI_PATH")).filter(|path| !path.as_os_str().is_empty()).collect(),
            network: config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            raw_arguments: read("CNI_ARGS"),
            config,
            input: input.to_vec(),
            version,
        };
        request.validate()?;
        Ok(request)
    }

    fn validate(&self) -> Result<(), PluginError> {
        if self.command.has_attachment() {
            let mut missing = Vec::new();
            let needs_namespace = self.command != CniCommand::Delete;
            for (name, value, is_needed) in [
                ("CNI_CONTAINERID", &self.container_id, true),
                ("CNI_NETNS", &self.namespace, needs_namespace),
                ("CNI_IFNAME", &self.interface, true),
            ] {
                if is_needed && value.is_empty() {
                    missing.push(name);
                }
            }
            if !missing.is_empty() {
                return Err(missing_variables(&missing));
            }
            validate_container_id(&self.container_id)?;
            validate_interface(&self.interface)?;
        }
        if self.network.is_empty() {
            return Err(PluginError::invalid("missing network name"));
        }
        if !is_identifier(&self.network) {
            return Err(PluginError::invalid(format!("invalid characters found in network name: {}", self.network)));
        }
        Ok(())
    }

    /// Decodes the configuration into a plug-in's own form.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PluginError> {
        T::deserialize(&self.config).map_err(|error| {
            PluginError::new(PluginError::DECODING_FAILURE, format!("failed to parse network configuration: {error}"))
        })
    }

    /// The result of the plug-ins before this one.
    pub fn previous_result(&self) -> Result<Option<CniResult>, PluginError> {
        match self.config.get("prevResult").filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => CniResult::from_value(value).map(Some),
        }
    }

    /// The result of the plug-ins before this one, which a chained plug-in and CHECK need.
    pub fn required_previous_result(&self) -> Result<CniResult, PluginError> {
        self.previous_result()?.ok_or_else(|| PluginError::invalid("must be called as chained plugin"))
    }

    /// Opens the container's network namespace.
    pub fn open_namespace(&self) -> Result<NetworkNamespace, PluginError> {
        NetworkNamespace::open(&self.namespace)
            .map_err(|error| PluginError::io(format_args!("failed to open netns {:?}", self.namespace), &error))
    }

    /// The IPAM plug-in's name.
    pub fn ipam_type(&self) -> Option<&str> {
        self.config.get("ipam")?.get("type")?.as_str().filter(|name| !name.is_empty())
    }
}

fn missing_variables(names: &[&str]) -> PluginError {
    let mut error = PluginError::new(PluginError::INVALID_ENVIRONMENT, "required env variables [missing]");
    error.message = format!("required env variables [{}] missing", names.join(","));
    error
}

/// Letters, digits and `_.-`, beginning with a letter or digit.
fn is_identifier(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_word) && text.chars().all(|c| is_word(c) || matches!(c, '_' | '.' | '-'))
}

fn validate_container_id(id: &str) -> Result<(), PluginError> {
    match is_identifier(id) {
        true => Ok(()),
        false => {
            Err(PluginError::new(PluginError::INVALID_ENVIRONMENT, format!("invalid characters in containerID: {id}")))
        }
    }
}

fn validate_interface(name: &str) -> Result<(), PluginError> {
    let problem = if name.len() > LONGEST_INTERFACE {
        Some("interface name is too long")
    } else if matches!(name, "." | "..") {
        Some("interface name is . or ..")
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        Some("interface name contains / or : or whitespace characters")
    } else {
        None
    };
    match problem {
        None => Ok(()),
        Some(problem) => Err(PluginError::new(PluginError::INVALID_ENVIRONMENT, format!("{problem}: {name}"))),
    }
}

fn parse_arguments(text: &str) -> Result<HashMap<String, String>, PluginError> {
    let mut arguments = HashMap::new();
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            PluginError::new(PluginError::INVALID_ENVIRONMENT, format!("ARGS: invalid pair {pair:?}"))
        })?;
        arguments.insert(name.to_owned(), value.to_owned());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: CniCommand, config: &str, environment: &[(&str, &str)]) -> Result<CniRequest, PluginError> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        CniRequest::parse(command, config.as_bytes(), &variable)
    }

    const FULL: [(&str, &str); 3] = [("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/x"), ("CNI_IFNAME", "eth0")];

    #[test]
    fn wrong_requests_are_refused_with_their_code() {
        let code =
            |command, config: &str, environment: &[(&str, &str)]| check(command, config, environment).unwrap_err().code;
        assert_eq!(code(CniCommand::Add, "{", &FULL), PluginError::DECODING_FAILURE);
        assert_eq!(
            code(CniCommand::Add, r#"{"cniVersion":"9.0.0","name":"n"}"#, &FULL),
            PluginError::INCOMPATIBLE_VERSION
        );
        assert_eq!(code(CniCommand::Add, r#"{"cniVersion":"1.0.0"}"#, &FULL), PluginError::INVALID_CONFIGURATION);
        assert_eq!(code(CniCommand::Add, r#"{"name":"n"}"#, &FULL[..2]), PluginError::INVALID_ENVIRONMENT);
        let long = [FULL[0], FULL[1], ("CNI_IFNAME", "a-name-that-is-too-long")];
        assert_eq!(code(CniCommand::Add, r#"{"name":"n"}"#, &long), PluginError::INVALID_ENVIRONMENT);
        let escape = [("CNI_CONTAINERID", "../x"), FULL[1], FULL[2]];
        assert_eq!(code(CniCommand::Add, r#"{"name":"n"}"#, &escape), PluginError::INVALID_ENVIRONMENT);
    }

    #[test]
    fn namespace_may_be_gone_in_delete() {
        let environment = [FULL[0], FULL[2], ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p")];
        let request = check(CniCommand::Delete, r#"{"cniVersion":"1.0.0","name":"n"}"#, &environment).unwrap();
        assert_eq!((request.namespace.as_str(), request.arguments["K8S_POD_NAME"].as_str()), ("", "p"));
    }
}
