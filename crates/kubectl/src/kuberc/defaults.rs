//! Defaults of flags, and the checks of a preference.

use super::{
    command_of,
    plugin_policy::PluginPolicy,
    preference_file::{AliasOverride, OptionDefault, Preference},
};
use crate::{
    command_table::CommandDefinition,
    errln,
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
};

/// Checks names of aliases and flags, and the policy of plug-ins.
pub fn check_preference(preference: &Preference) -> CommandResult {
    let mut names: Vec<&str> = Vec::new();
    for alias in &preference.aliases {
        if alias.name.is_empty() || !alias.name.chars().all(|c| c.is_ascii_alphabetic()) {
            crate::bail!("invalid alias name, can only include alphabetical characters");
        }
        check_options(&alias.options)?;
        if names.contains(&alias.name.as_str()) {
            crate::bail!("duplicate alias name {}", alias.name);
        }
        names.push(&alias.name);
    }
    preference.defaults.iter().try_for_each(|entry| check_options(&entry.options))?;
    PluginPolicy::from_preference(preference).check()
}

fn check_options(options: &[OptionDefault]) -> CommandResult {
    match options.iter().find(|option| option.name.starts_with('-')) {
        Some(option) => crate::bail!("flag name {} should be in long form without dashes", option.name),
        None => Ok(()),
    }
}

/// Sets the flags of an alias.
pub fn apply_alias(alias: &AliasOverride, arguments: &[String], flags: &mut FlagSet) -> CommandResult {
    for option in &alias.options {
        if !flags.has(&option.name) {
            crate::bail!("invalid alias flag {} in alias kubectl", option.name);
        }
        let failed = |error| {
            let OptionDefault { name, default } = option;
            CommandError::new(format!("could not apply value {default} to flag {name} in alias kubectl err: {error}"))
        };
        apply_option(option, arguments, flags).map_err(failed)?;
    }
    Ok(())
}

/// Sets the flags of the defaults for the command. Only the last word of a command is compared.
pub fn apply_commands(
    preference: &Preference,
    command: &CommandDefinition,
    arguments: &[String],
    flags: &mut FlagSet,
) -> CommandResult {
    for entry in &preference.defaults {
        let words: Vec<String> = entry.command.split_whitespace().map(str::to_owned).collect();
        let Some(target) = command_of(&words) else {
            errln!("Warning: command {} not found to set kuberc override", api::json::go_quote(&entry.command));
            continue;
        };
        if target.name() != command.name() {
            continue;
        }
        for option in &entry.options {
            if !flags.has(&option.name) {
                crate::bail!("invalid flag {} for command {}", option.name, entry.command);
            }
            let failed = |error| {
                let OptionDefault { name, default } = option;
                let place = format!("flag {name} in command {}", entry.command);
                CommandError::new(format!("could not apply override value {default} to {place} err: {error}"))
            };
            apply_option(option, arguments, flags).map_err(failed)?;
        }
    }
    Ok(())
}

fn apply_option(option: &OptionDefault, arguments: &[String], flags: &mut FlagSet) -> CommandResult {
    let short = flags.definition(&option.name).and_then(|flag| flag.short);
    if is_given(&option.name, short, arguments) { Ok(()) } else { flags.set(&option.name, option.default.clone()) }
}

/// Whether the arguments name a flag; a short form counts in any cluster of letters.
fn is_given(name: &str, short: Option<char>, arguments: &[String]) -> bool {
    let long = format!("--{name}");
    arguments.iter().any(|argument| {
        if *argument == long || argument.starts_with(&format!("{long}=")) {
            return true;
        }
        let Some(short) = short else { return false };
        let Some(cluster) = argument.strip_prefix('-') else { return false };
        let letters = !cluster.is_empty() && cluster.chars().all(|c| c.is_ascii_alphabetic());
        cluster.starts_with(short) || (letters && cluster.contains(short))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_the_arguments_win() {
        let given = |name: &str, short, text: &str| {
            is_given(name, short, &text.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        for text in ["get --output json", "get --output=json", "get -ojson", "get -Ao"] {
            assert!(given("output", Some('o'), text), "{text}");
        }
        for text in ["get --outputs", "get json", "get -n x"] {
            assert!(!given("output", Some('o'), text), "{text}");
        }
    }
}
