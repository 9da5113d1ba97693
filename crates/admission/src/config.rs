//! Admission configuration: the plug-in flags and the `AdmissionConfiguration` file, validated once.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use api::{Value, meta, yaml};

use super::{
    PluginDescriptor,
    plugins::{INITIAL_RESOURCES, PLUGINS},
};

/// The enabled and disabled plug-ins, and their configurations.
#[derive(Clone, Debug, Default)]
pub struct AdmissionOptions {
    enabled: Vec<String>,
    disabled: Vec<String>,
    configs: BTreeMap<String, Value>,
    /// Default toleration seconds of the not-ready and unreachable taints.
    pub toleration_seconds: Option<(i64, i64)>,
}

/// An invalid value of a plug-in flag.
#[derive(Debug, thiserror::Error)]
pub enum PluginFlagError {
    /// The named plug-in does not exist.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// The flag.
        flag: &'static str,
        /// The unknown plug-in name.
        name: String,
    },
    /// Plug-ins named in both flags.
    #[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap(String),
}

/// An unusable `AdmissionConfiguration` file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// The file cannot be read or parsed.
    #[error("unable to read admission control configuration from {0:?} [{1}]")]
    Admission(PathBuf, #[source] Box<Self>),
    /// The configuration file of a plug-in cannot be read or parsed.
    #[error("{}: {}", .0.display(), .1)]
    Plugin(PathBuf, #[source] Box<Self>),
    /// The file has another kind or version.
    #[error("it is not an AdmissionConfiguration of {0}")]
    Kind(&'static str),
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is malformed YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::YamlError),
}

impl AdmissionOptions {
    /// Applies `--enable-admission-plugins` and `--disable-admission-plugins` to upstream's default set.
    pub fn new(enabled: &[String], disabled: &[String]) -> Result<Self, PluginFlagError> {
        let known = |flag: &'static str, names: &[String]| {
            let unknown = names.iter().find(|name| !PLUGINS.iter().any(|descriptor| descriptor.name == name.as_str()));
            unknown.map_or(Ok(()), |name| Err(PluginFlagError::Unknown { flag, name: name.clone() }))
        };
        known("enable-admission-plugins", enabled)?;
        known("disable-admission-plugins", disabled)?;
        let mut both: Vec<&str> = enabled.iter().filter(|name| disabled.contains(name)).map(String::as_str).collect();
        both.sort_unstable();
        if !both.is_empty() {
            return Err(PluginFlagError::Overlap(both.join(" ")));
        }
        Ok(Self { enabled: enabled.to_vec(), disabled: disabled.to_vec(), ..Self::default() })
    }

    /// Enables a plug-in regardless of the flags.
    pub fn enable_plugin(&mut self, plugin: &str) {
        self.disabled.retain(|name| name != plugin);
        self.enabled.push(plugin.to_owned());
    }

    /// The names of all plug-ins.
    pub fn plugin_names() -> impl Iterator<Item = &'static str> {
        PLUGINS.iter().map(|descriptor| descriptor.name)
    }

    /// Reads the plug-in configurations of the `AdmissionConfiguration` file at `path`. Relative paths in it are
    /// resolved against its directory.
    pub fn with_config_file(mut self, path: &Path) -> Result<Self, ConfigFileError> {
        let unreadable = |source| ConfigFileError::Admission(path.to_owned(), Box::new(source));
        let file = read_yaml(path).map_err(unreadable)?;
        let known = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
        let version = meta::string_at(&file, &["apiVersion"]);
        if meta::string_at(&file, &["kind"]) != "AdmissionConfiguration" || !known.contains(&version) {
            return Err(unreadable(ConfigFileError::Kind(known[0])));
        }
        for plugin in meta::list_at(&file, &["plugins"]) {
            let config = match (meta::value_at(plugin, &["configuration"]), meta::string_at(plugin, &["path"])) {
                (Some(config), _) => config.clone(),
                (None, "") => continue,
                (None, other) => {
                    let other = path.parent().unwrap_or(Path::new("")).join(other);
                    read_yaml(&other).map_err(|source| ConfigFileError::Plugin(other, Box::new(source)))?
                }
            };
            self.configs.insert(meta::string_at(plugin, &["name"]).to_owned(), config);
        }
        Ok(self)
    }

    /// Sets the configuration of one plug-in.
    pub fn with_plugin_config(mut self, plugin: &str, config: Value) -> Self {
        self.configs.insert(plugin.to_owned(), config);
        self
    }

    /// Whether an enabled plug-in reads container usage samples.
    pub fn needs_container_usage(&self) -> bool {
        PLUGINS.iter().any(|descriptor| descriptor.name == INITIAL_RESOURCES && self.is_enabled(descriptor))
    }

    pub(super) fn is_enabled(&self, descriptor: &PluginDescriptor) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == descriptor.name);
        named(&self.enabled) || descriptor.enabled_by_default && !named(&self.disabled)
    }

    pub(super) fn plugin_config(&self, plugin: &str) -> Option<&Value> {
        self.configs.get(plugin)
    }
}

fn read_yaml(path: &Path) -> Result<Value, ConfigFileError> {
    Ok(yaml::parse(&fs::read(path)?)?.value)
}
