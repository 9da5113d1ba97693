//! The file format: `Preference` of `kubectl.config.k8s.io`, v1beta1 and v1alpha1.

use api::{Map, Value, json::go_quote};
use serde::{Deserialize, Serialize};

use crate::{
    errors::{CommandError, CommandResult},
    klog::{LogLevel, log_line},
};

/// The preferences of a file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preference {
    /// `Preference`
    pub kind: String,
    /// The version of the format.
    pub api_version: String,
    /// Defaults of flags, by command.
    #[serde(deserialize_with = "null_as_empty")]
    pub defaults: Vec<CommandDefault>,
    /// Aliases.
    #[serde(deserialize_with = "null_as_empty")]
    pub aliases: Vec<AliasOverride>,
    /// Which credential plug-ins may run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub credential_plugin_policy: String,
    /// The plug-ins that may run under the policy `Allowlist`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_plugin_allowlist: Option<Vec<AllowlistEntry>>,
}

/// Defaults of a command's flags.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct CommandDefault {
    /// The words of the command.
    pub command: String,
    /// The flags.
    #[serde(deserialize_with = "null_as_empty", serialize_with = "empty_as_null")]
    pub options: Vec<OptionDefault>,
}

/// The default of a flag.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct OptionDefault {
    /// The long name.
    pub name: String,
    /// The value.
    pub default: String,
}

/// An alias.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AliasOverride {
    /// The name.
    pub name: String,
    /// The words of the command.
    pub command: String,
    /// Arguments after the command.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub prepend_args: Vec<String>,
    /// Arguments at the end.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub append_args: Vec<String>,
    /// Flags.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionDefault>,
}

/// A plug-in that may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct AllowlistEntry {
    /// The former name of `command`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name or path of the program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl AllowlistEntry {
    /// Moves the former field to the one that replaced it.
    fn replace_name(&mut self) -> CommandResult {
        let name = std::mem::take(&mut self.name);
        if !name.is_empty() && !self.command.is_empty() && name != self.command {
            crate::bail!(
                "both `Name` and `Command` were supplied with different values. `Name` is deprecated, use `Command` instead"
            );
        }
        if self.command.is_empty() {
            self.command = name;
        }
        Ok(())
    }
}

fn null_as_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn empty_as_null<S: serde::Serializer, T: Serialize>(items: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    if items.is_empty() { serializer.serialize_none() } else { items.serialize(serializer) }
}

/// A preference and what a strict decoder has against it.
#[derive(Debug)]
pub struct LoadedPreference {
    /// The preference.
    pub preference: Preference,
    /// Unknown and duplicate fields.
    pub strict_error: Option<String>,
}

/// Reads the first usable document of a file; `None` if it has no documents. From level 5 on it logs what it finds.
pub fn read_preference(file: &str, level: LogLevel) -> CommandResult<Option<LoadedPreference>> {
    let log = |line: u32, text: String| {
        if level >= LogLevel(5) {
            log_line('I', &format!("marshal.go:{line}"), &format!("kuberc: {text}"));
        }
    };
    let bytes = crate::files::read_file(file)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let documents = text.split("\n---").map(|part| part.trim_start_matches("---"));
    let mut tried = 0;
    for document in documents.filter(|document| !document.trim().is_empty()) {
        tried += 1;
        match decode_document(document) {
            Ok(loaded) => {
                let version = &loaded.preference.api_version;
                log(94, format!("using entry {tried} ({version}) in {file}"));
                return Ok(Some(loaded));
            }
            Err(error) => log(71, format!("strict decoding error for entry {tried} in {file}: {error}")),
        }
    }
    if tried > 0 {
        crate::bail!("no valid preferences found in {file}, use --v=5 to see details");
    }
    log(103, format!("no preferences found in {file}"));
    Ok(None)
}

/// Decodes a file as v1beta1 without checks of its version, as the `kuberc` commands do.
pub fn parse_preference(bytes: &[u8]) -> CommandResult<Preference> {
    let document = api::yaml::parse(bytes).map_err(|error| CommandError::new(error.to_string()))?;
    match document.value {
        Value::Null => Ok(Preference::default()),
        value => serde_json::from_value(value).map_err(|error| CommandError::new(error.to_string())),
    }
}

fn decode_document(text: &str) -> CommandResult<LoadedPreference> {
    let document = api::yaml::parse(text.as_bytes()).map_err(|error| CommandError::new(error.to_string()))?;
    let field = |name: &str| document.value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    let version = api_version.strip_prefix("kubectl.config.k8s.io/").unwrap_or_default();
    if kind != "Preference" || !["v1beta1", "v1alpha1"].contains(&version) {
        crate::bail!("no kind {} is registered for version {}", go_quote(kind), go_quote(api_version));
    }
    let old = version == "v1alpha1";
    let mut unknown = document.duplicate_key_error().into_iter().collect::<Vec<_>>();
    collect_unknown(&document.value, old, &mut unknown);
    let value = if old { convert_alpha(document.value) } else { document.value };
    let mut preference: Preference =
        serde_json::from_value(value).map_err(|error| CommandError::new(error.to_string()))?;
    for entry in preference.credential_plugin_allowlist.iter_mut().flatten() {
        entry.replace_name()?;
    }
    let strict_error = (!unknown.is_empty()).then(|| format!("strict decoding error: {}", unknown.join(", ")));
    Ok(LoadedPreference { preference, strict_error })
}

/// The names of v1alpha1 to those of v1beta1; names that only v1beta1 has are dropped.
fn convert_alpha(mut value: Value) -> Value {
    fn rename(map: &mut Map, from: &str, to: &str) {
        map.remove(to);
        if let Some(inner) = map.remove(from) {
            map.insert(to.to_owned(), inner);
        }
    }
    if let Some(map) = value.as_object_mut() {
        rename(map, "overrides", "defaults");
        map.remove("credentialPluginPolicy");
        map.remove("credentialPluginAllowlist");
        for list in ["defaults", "aliases"] {
            for entry in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(entry) = entry.as_object_mut() {
                    rename(entry, "flags", "options");
                }
            }
        }
    }
    value
}

/// Names every unknown field, in the order of sorted keys.
fn collect_unknown(value: &Value, old: bool, unknown: &mut Vec<String>) {
    let (defaults, options) = if old { ("overrides", "flags") } else { ("defaults", "options") };
    let mut top = vec!["apiVersion", "kind", "aliases", defaults];
    if !old {
        top.extend(["credentialPluginPolicy", "credentialPluginAllowlist"]);
    }
    let alias = ["name", "command", "prependArgs", "appendArgs", options];
    let command = ["command", options];
    for (key, inner) in sorted(value) {
        let items = inner.as_array().map(Vec::as_slice).unwrap_or_default();
        let known: &[&str] = match key.as_str() {
            key if !top.contains(&key) => {
                unknown.push(unknown_field(key));
                continue;
            }
            "aliases" => &alias,
            "credentialPluginAllowlist" => &["name", "command"],
            key if key == defaults => &command,
            _ => continue,
        };
        for (at, item) in items.iter().enumerate() {
            for (field, inner) in sorted(item) {
                let path = format!("{key}[{at}].{field}");
                if !known.contains(&field.as_str()) {
                    unknown.push(unknown_field(&path));
                } else if field == options {
                    collect_unknown_options(inner, &path, unknown);
                }
            }
        }
    }
}

fn collect_unknown_options(value: &Value, path: &str, unknown: &mut Vec<String>) {
    for (at, option) in value.as_array().into_iter().flatten().enumerate() {
        for (field, _) in sorted(option) {
            if !["name", "default"].contains(&field.as_str()) {
                unknown.push(unknown_field(&format!("{path}[{at}].{field}")));
            }
        }
    }
}

fn unknown_field(path: &str) -> String {
    format!("unknown field {}", go_quote(path))
}

fn sorted(value: &Value) -> Vec<(&String, &Value)> {
    let mut fields: Vec<(&String, &Value)> = value.as_object().into_iter().flatten().collect();
    fields.sort_by_key(|(key, _)| *key);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> LoadedPreference {
        decode_document(text).unwrap()
    }

    #[test]
    fn unknown_fields_are_named_by_path() {
        let text = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\nbogus: 1\naliases:\n- {name: a, x: 1}\n\
                    defaults:\n- command: get\n  options: [{name: o, z: 1}]\n";
        let error = load(text).strict_error.unwrap();
        let wanted = "strict decoding error: unknown field \"aliases[0].x\", unknown field \"bogus\", unknown field \
                      \"defaults[0].options[0].z\"";
        assert_eq!(error, wanted);
    }

    #[test]
    fn old_version_has_its_own_names() {
        let text = "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\noverrides:\n- command: get\n  flags:\n  - \
                    {name: output, default: wide}\ndefaults: []\n";
        let loaded = load(text);
        assert_eq!(loaded.preference.defaults[0].options[0].default, "wide");
        assert_eq!(loaded.strict_error.unwrap(), "strict decoding error: unknown field \"defaults\"");
    }

    #[test]
    fn former_name_of_a_command_still_counts() {
        let head = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ncredentialPluginAllowlist:\n";
        let list = load(&format!("{head}- name: a\n- command: b\n- {{name: c, command: c}}\n- {{}}\n"));
        let commands = list.preference.credential_plugin_allowlist.unwrap();
        assert!(commands.iter().all(|entry| entry.name.is_empty()));
        assert_eq!(commands.iter().map(|entry| entry.command.as_str()).collect::<Vec<_>>(), ["a", "b", "c", ""]);
        assert!(decode_document(&format!("{head}- {{name: a, command: b}}\n")).is_err());
    }

    #[test]
    fn other_kinds_and_wrong_types_are_not_preferences() {
        for text in [
            "apiVersion: v1\nkind: Preference\n",
            "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Config\n",
            "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\naliases: 7\n",
            "[",
        ] {
            assert!(decode_document(text).is_err(), "{text}");
        }
    }
}
