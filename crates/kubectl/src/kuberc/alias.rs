//! Aliases of commands.

use super::{
    command_of,
    preference_file::{AliasOverride, Preference},
};
use crate::{errln, errors::CommandResult};

/// Arguments after an alias was replaced.
#[derive(Clone, Debug, Default)]
pub struct AliasExpansion {
    /// The arguments.
    pub arguments: Vec<String>,
    /// The alias, if there was one.
    pub alias: Option<AliasOverride>,
}

/// Replaces the first word by the command of the alias of that name.
pub fn expand(preference: &Preference, arguments: &[String]) -> CommandResult<AliasExpansion> {
    let unchanged = AliasExpansion { arguments: arguments.to_vec(), alias: None };
    if command_of(arguments).is_some() {
        return Ok(unchanged);
    }
    let is_word = |argument: &&String| !argument.starts_with('-') && !argument.starts_with("__complete");
    let Some(word) = arguments.iter().find(is_word) else { return Ok(unchanged) };
    let Some(alias) = preference.aliases.iter().find(|alias| alias.name == *word) else { return Ok(unchanged) };
    if command_of(std::slice::from_ref(&alias.name)).is_some() {
        errln!("Warning: Setting alias {} to a built-in command is not supported", api::json::go_quote(&alias.name));
        return Ok(unchanged);
    }
    let words: Vec<String> = alias.command.split_whitespace().map(str::to_owned).collect();
    if command_of(&words).is_none() {
        let (command, name) = (api::json::go_quote(&alias.command), api::json::go_quote(&alias.name));
        crate::bail!("command {command} not found to set alias {name}: [{}]", words.join(" "));
    }
    let mut expanded = Vec::with_capacity(arguments.len() + words.len());
    let mut replaced = false;
    for argument in arguments {
        if !replaced && argument == word {
            expanded.extend(words.iter().chain(&alias.prepend_args).cloned());
            replaced = true;
        } else {
            expanded.push(argument.clone());
        }
    }
    expanded.extend(alias.append_args.iter().cloned());
    Ok(AliasExpansion { arguments: expanded, alias: Some(alias.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn preference() -> Preference {
        let alias = |name: &str, command: &str| AliasOverride {
            name: name.into(),
            command: command.into(),
            prepend_args: words("cm"),
            append_args: words("-- x"),
            ..Default::default()
        };
        Preference {
            aliases: vec![alias("getn", "get"), alias("lost", "nothing"), alias("get", "get")],
            ..Default::default()
        }
    }

    #[test]
    fn alias_becomes_its_command_with_arguments_around() {
        let expansion = expand(&preference(), &words("-v=1 getn a -o json")).unwrap();
        assert_eq!(expansion.arguments, words("-v=1 get cm a -o json -- x"));
        assert!(expansion.alias.is_some());
    }

    #[test]
    fn built_in_commands_are_not_replaced() {
        assert_eq!(expand(&preference(), &words("get pods")).unwrap().arguments, words("get pods"));
        assert!(expand(&preference(), &words("lost")).is_err());
    }
}
