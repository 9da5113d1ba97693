//! User preferences (`kuberc`): aliases, defaults of flags, and which credential plug-ins may run.

mod alias;
mod defaults;
mod plugin_policy;
mod preference_file;

use std::path::Path;

pub use alias::AliasExpansion;
pub use plugin_policy::PluginPolicy;
pub use preference_file::{AliasOverride, AllowlistEntry, CommandDefault, OptionDefault, Preference, parse_preference};
use preference_file::{LoadedPreference, read_preference};

use crate::{
    command_table::CommandDefinition, errors::CommandResult, flag_set::FlagSet, klog::LogLevel, output::write_err,
    suggestions::find_command,
};

/// The preferences of the user, validated.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    preference: Preference,
}

/// Loads the preferences that the arguments, the environment or the default path name.
pub fn load_preferences(arguments: &[String]) -> CommandResult<Preferences> {
    let disabled = std::env::var("KUBECTL_KUBERC").is_ok_and(|value| value.eq_ignore_ascii_case("false"));
    if disabled || arguments.is_empty() {
        return Ok(Preferences::default());
    }
    let explicit = explicit_file(arguments)?;
    let preference = load_file(&explicit, log_level(arguments)).map_err(|error| error.with_prefix("kuberc error "))?;
    let Some(preference) = preference else { return Ok(Preferences::default()) };
    defaults::check_preference(&preference)?;
    Ok(Preferences { preference })
}

/// The file that is used: the explicit one, that of `KUBERC` or the default; `None` if the feature is off. The second value
/// says whether the file was named.
pub fn select_file(explicit: &str) -> CommandResult<Option<(String, bool)>> {
    let variable = std::env::var("KUBERC").unwrap_or_default();
    if variable == "off" {
        if !explicit.is_empty() {
            crate::bail!("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive");
        }
        return Ok(None);
    }
    Ok(Some(match (explicit, variable) {
        ("", variable) if variable.is_empty() => (default_file(), false),
        ("", variable) => (variable, true),
        (explicit, _) => (explicit.to_owned(), true),
    }))
}

fn default_file() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    Path::new(&home).join(".kube/kuberc").to_string_lossy().into_owned()
}

fn load_file(explicit: &str, level: LogLevel) -> CommandResult<Option<Preference>> {
    let Some((file, named)) = select_file(explicit)? else { return Ok(None) };
    if !named && !Path::new(&file).exists() {
        return Ok(None);
    }
    match read_preference(&file, level) {
        Ok(None) => Ok(None),
        Ok(Some(LoadedPreference { preference, strict_error })) => {
            if let Some(error) = strict_error {
                write_err(&format!("kuberc: ignoring strict decoding error in {file}: {error}"));
            }
            Ok(Some(preference))
        }
        Err(error) if named => Err(error.with_prefix("kuberc: ")),
        Err(error) => {
            write_err(&format!("kuberc: no preferences loaded from {file}: {error}"));
            Ok(None)
        }
    }
}

/// The value of `-v`, which is needed before flags are parsed.
fn log_level(arguments: &[String]) -> LogLevel {
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        let value = match argument.as_str() {
            "-v" | "--v" => arguments.next().map(String::as_str),
            _ if argument.contains("-v=") => argument.split('=').nth(1).filter(|value| !value.is_empty()),
            _ => None,
        };
        if let Some(value) = value {
            return LogLevel(value.parse().unwrap_or_default());
        }
    }
    LogLevel::default()
}

/// The value of `--kuberc`, which is needed before flags are parsed.
fn explicit_file(arguments: &[String]) -> CommandResult<String> {
    for (at, argument) in arguments.iter().enumerate() {
        if argument == "--" {
            break;
        }
        let value = match argument.split_once("--kuberc=") {
            Some((_, value)) => Some(value.split('=').next().unwrap_or_default()),
            None if argument == "--kuberc" => Some(arguments.get(at + 1).map_or("", String::as_str)),
            None => None,
        };
        match value {
            Some("") => crate::bail!("kuberc file is not found"),
            Some(value) => return Ok(value.to_owned()),
            None => {}
        }
    }
    Ok(String::new())
}

/// The command that words name; `None` if they name none.
fn command_of(words: &[String]) -> Option<&'static CommandDefinition> {
    let found = find_command(words)?;
    let unknown = found.command.path == "kubectl" && found.arguments.iter().any(|word| !word.starts_with('-'));
    (!unknown).then_some(found.command)
}

impl Preferences {
    /// Which credential plug-ins may run.
    pub fn plugin_policy(&self) -> PluginPolicy {
        PluginPolicy::from_preference(&self.preference)
    }

    /// Replaces an alias by its command.
    pub fn expand_alias(&self, arguments: &[String]) -> CommandResult<AliasExpansion> {
        alias::expand(&self.preference, arguments)
    }

    /// Sets flags that the arguments do not name: those of the alias, or those of the command's defaults.
    pub fn apply_defaults(
        &self,
        expansion: &AliasExpansion,
        command: &CommandDefinition,
        flags: &mut FlagSet,
    ) -> CommandResult {
        match &expansion.alias {
            Some(used) => {
                if self.preference.defaults.iter().any(|entry| entry.command == used.name) {
                    crate::bail!("alias {} can not be overridden", used.name);
                }
                defaults::apply_alias(used, &expansion.arguments, flags)
            }
            None => defaults::apply_commands(&self.preference, command, &expansion.arguments, flags),
        }
    }
}
