//! Finding the command that arguments name, and suggestions for names that are close to one.

use crate::command_table::{CommandDefinition, FlagDefinition, command_table};

/// The command that arguments name, and the arguments without its words.
#[derive(Debug)]
pub struct CommandMatch {
    /// The command.
    pub command: &'static CommandDefinition,
    /// The remaining arguments, flags included.
    pub arguments: Vec<String>,
}

/// Finds the deepest command that the arguments name; flags may stand before its words.
pub fn find_command(arguments: &[String]) -> Option<CommandMatch> {
    let table = command_table();
    let mut command = table.command("kubectl")?;
    let mut rest = arguments.to_vec();
    loop {
        let positions = positional_indexes(&rest, &table.flags_of(&command.path));
        let Some(first) = positions.first() else { break };
        let word = &rest[*first];
        let children = table.subcommands(&command.path);
        let child = children.into_iter().find(|child| child.name() == word || child.aliases.contains(word));
        let Some(child) = child else { break };
        command = child;
        rest.remove(*first);
    }
    Some(CommandMatch { command, arguments: rest })
}

/// The first argument that is neither a flag nor the value of one.
pub fn first_positional(arguments: &[String], flags: &[&FlagDefinition]) -> Option<String> {
    positional_indexes(arguments, flags).first().map(|at| arguments[*at].clone())
}

/// The positions of arguments that are neither flags nor their values.
fn positional_indexes(arguments: &[String], flags: &[&FlagDefinition]) -> Vec<usize> {
    let mut positions = Vec::new();
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        if argument == "--" {
            break;
        }
        let long = argument.strip_prefix("--");
        let takes_value = match long {
            Some(name) if !name.contains('=') => {
                !flags.iter().any(|flag| flag.name == name && flag.bare.is_some()) && name != "help"
            }
            Some(_) => false,
            None if argument.len() == 2 && argument.starts_with('-') => {
                let short = argument.chars().nth(1);
                !flags.iter().any(|flag| flag.short == short && flag.bare.is_some()) && short != Some('h')
            }
            None => false,
        };
        if takes_value {
            at += 1;
        } else if !argument.is_empty() && !argument.starts_with('-') {
            positions.push(at);
        }
        at += 1;
    }
    positions
}

/// The error for an unknown command, with suggestions.
pub fn unknown_command(word: &str) -> String {
    let mut text = format!("unknown command {} for \"kubectl\"", api::json::go_quote(word));
    let close: Vec<&str> = command_table()
        .subcommands("kubectl")
        .into_iter()
        .filter(|command| command.has_option("runnable") && command.name() != "help" && is_suggested(word, command))
        .map(CommandDefinition::name)
        .collect();
    if !close.is_empty() {
        text += "\n\nDid you mean this?\n";
        close.iter().for_each(|name| text += &format!("\t{name}\n"));
    }
    text
}

fn is_suggested(word: &str, command: &CommandDefinition) -> bool {
    let (word, name) = (word.to_lowercase(), command.name().to_lowercase());
    edit_distance(&word, &name) <= 2 || name.starts_with(&word) || command.suggest_for.contains(&word)
}

/// The Levenshtein distance.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let cost = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
