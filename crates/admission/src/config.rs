//! Admission configuration: the plug-in flags and the `AdmissionConfiguration` file, validated once.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use api::{Value, meta, yaml};
use authz::Authorizers;
use store::WatchCache;

use super::{
    PluginDescriptor,
    plugins::{INITIAL_RESOURCES, ROWS},
};
use crate::{Times, usage::Usage};

/// The enabled and disabled plug-ins, and their configurations.
#[derive(Clone, Debug, Default)]
pub struct AdmissionSettings {
    enabled: Vec<String>,
    disabled: Vec<String>,
    configs: BTreeMap<String, Value>,
    /// Default toleration seconds of the not-ready and unreachable taints.
    pub toleration_seconds: Option<(i64, i64)>,
}

/// An invalid value of a plug-in flag.
#[derive(Debug, thiserror::Error)]
pub enum UnknownPlugin {
    /// The named plug-in does not exist.
    #[error("{flag} plugin {name:?} is unknown")]
    Name {
        /// The flag.
        flag: &'static str,
        /// The unknown plug-in name.
        name: String,
    },
    /// Plug-ins named in both flags.
    #[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
}

/// Dependencies that plug-in constructors receive.
#[derive(Clone, Copy)]
pub struct PluginInit<'a> {
    /// The plug-in's own configuration.
    pub config: Option<&'a Value>,
    /// The settings of the whole chain.
    pub settings: &'a AdmissionSettings,
    /// The watch cache that indexes are built on.
    pub cache: &'a Arc<WatchCache>,
    /// The authorizer chain.
    pub authorizers: &'a Arc<Authorizers>,
    /// Recorded resource usage of containers.
    pub usage: &'a Arc<Usage>,
    /// The latency metrics of the chain.
    pub times: &'a Arc<Times>,
}

impl AdmissionSettings {
    /// Applies `--enable-admission-plugins` and `--disable-admission-plugins` to upstream's default set.
    pub fn new(enabled: &[String], disabled: &[String]) -> Result<Self, UnknownPlugin> {
        let known = |flag: &'static str, names: &[String]| {
            let unknown = names.iter().find(|name| !ROWS.iter().any(|row| row.name == name.as_str()));
            unknown.map_or(Ok(()), |name| Err(UnknownPlugin::Name { flag, name: name.clone() }))
        };
        known("enable-admission-plugins", enabled)?;
        known("disable-admission-plugins", disabled)?;
        let mut both: Vec<&str> = enabled.iter().filter(|name| disabled.contains(name)).map(String::as_str).collect();
        both.sort_unstable();
        if !both.is_empty() {
            return Err(UnknownPlugin::Both(both.join(" ")));
        }
        Ok(Self { enabled: enabled.to_vec(), disabled: disabled.to_vec(), ..Self::default() })
    }

    /// Enables a plug-in regardless of the flags.
    pub fn enable(&mut self, plugin: &str) {
        self.disabled.retain(|name| name != plugin);
        self.enabled.push(plugin.to_owned());
    }

    /// The names of all plug-ins.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// Reads the plug-in configurations of the `AdmissionConfiguration` file at `path`. Relative paths in it are
    /// resolved against its directory.
    pub fn configured(mut self, path: &Path) -> Result<Self, String> {
        let unreadable = |why: String| format!("unable to read admission control configuration from {path:?} [{why}]");
        let file = read(path).map_err(unreadable)?;
        let known = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
        let version = meta::string_at(&file, &["apiVersion"]);
        if meta::string_at(&file, &["kind"]) != "AdmissionConfiguration" || !known.contains(&version) {
            return Err(unreadable(format!("it is not an AdmissionConfiguration of {}", known[0])));
        }
        for plugin in meta::list_at(&file, &["plugins"]) {
            let config = match (meta::value_at(plugin, &["configuration"]), meta::string_at(plugin, &["path"])) {
                (Some(config), _) => config.clone(),
                (None, "") => continue,
                (None, other) => {
                    let other = path.parent().unwrap_or(Path::new("")).join(other);
                    read(&other).map_err(|why| format!("{}: {why}", other.display()))?
                }
            };
            self.configs.insert(meta::string_at(plugin, &["name"]).to_owned(), config);
        }
        Ok(self)
    }

    /// Sets the configuration of one plug-in.
    pub fn with(mut self, plugin: &str, config: Value) -> Self {
        self.configs.insert(plugin.to_owned(), config);
        self
    }

    /// Whether an enabled plug-in reads container usage samples.
    pub fn wants_usage(&self) -> bool {
        ROWS.iter().any(|row| row.name == INITIAL_RESOURCES && self.enables(row))
    }

    pub(super) fn enables(&self, row: &PluginDescriptor) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == row.name);
        named(&self.enabled) || row.on && !named(&self.disabled)
    }

    pub(super) fn config(&self, plugin: &str) -> Option<&Value> {
        self.configs.get(plugin)
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read(path).map_err(|error| error.to_string())?;
    yaml::parse(&text).map(|parsed| parsed.value).map_err(|error| error.to_string())
}
