//! Kubeconfig files: loading, merging and the choice of context, cluster and user.
//!
//! Entries stay JSON objects with the names of the file format, so that unknown fields survive a change by `config`.

mod client_config;
mod config_files;
mod entry_types;
mod exec_credential;
mod load;
mod validate;

use std::{collections::BTreeMap, path::PathBuf};

use api::{Map, Value};

pub use client_config::{ClientSettings, ConfigOverrides, resolve_settings, select_namespace, selected_user};
pub use config_files::{modify_config, redact_entry, relativize_entry};
pub use entry_types::corrupt_base64;
pub use exec_credential::load_exec_credentials;
pub use load::LoadingRules;
use load::load_file;

/// The merged content of kubeconfig files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kubeconfig {
    /// Clusters by name.
    pub clusters: BTreeMap<String, Map>,
    /// Users by name.
    pub users: BTreeMap<String, Map>,
    /// Contexts by name.
    pub contexts: BTreeMap<String, Map>,
    /// The current context.
    pub current_context: String,
    /// Preferences, which nothing reads any more.
    pub preferences: Map,
    /// Extensions by name.
    pub extensions: BTreeMap<String, Value>,
    /// The file of each entry, by section and name.
    pub origins: BTreeMap<(&'static str, String), PathBuf>,
}

/// The sections of a kubeconfig: the list, and the field of its entries.
pub const SECTIONS: [(&str, &str); 3] = [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];

impl Kubeconfig {
    /// The entries of a section.
    pub fn section(&self, name: &str) -> &BTreeMap<String, Map> {
        match name {
            "clusters" => &self.clusters,
            "contexts" => &self.contexts,
            _ => &self.users,
        }
    }

    /// The entries of a section, to change them.
    pub fn section_mut(&mut self, name: &str) -> &mut BTreeMap<String, Map> {
        match name {
            "clusters" => &mut self.clusters,
            "contexts" => &mut self.contexts,
            _ => &mut self.users,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
            && self.users.is_empty()
            && self.contexts.is_empty()
            && self.current_context.is_empty()
            && self.extensions.is_empty()
    }

    /// The document that is written to a file.
    pub fn to_value(&self) -> Value {
        let mut document = Map::new();
        document.insert("apiVersion".into(), "v1".into());
        document.insert("kind".into(), "Config".into());
        document.insert("current-context".into(), self.current_context.clone().into());
        for (list, field) in SECTIONS {
            // Fields that are written even when they are empty.
            let required: &[&str] = match list {
                "clusters" => &["server"],
                "contexts" => &["cluster", "user"],
                _ => &[],
            };
            let entry = |(name, value): (&String, &Map)| {
                let mut value = value.clone();
                for field in required {
                    value.entry((*field).to_owned()).or_insert_with(|| "".into());
                }
                serde_json::json!({"name": name, field: value})
            };
            let entries: Vec<Value> = self.section(list).iter().map(entry).collect();
            document.insert(list.into(), if entries.is_empty() { Value::Null } else { entries.into() });
        }
        if !self.preferences.is_empty() {
            document.insert("preferences".into(), Value::Object(self.preferences.clone()));
        }
        if !self.extensions.is_empty() {
            let entry = |(name, value): (&String, &Value)| serde_json::json!({"name": name, "extension": value});
            document.insert("extensions".into(), self.extensions.iter().map(entry).collect());
        }
        Value::Object(document)
    }
}

/// The text of a field; empty if absent.
pub fn text_of<'a>(entry: &'a Map, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}
