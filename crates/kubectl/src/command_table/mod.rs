//! The table of commands: names, texts and flags, from which parsing, help and completion are derived.
//!
//! `commands.txt` has a block per command. A line is a word, a tab and a value; a text of several lines follows its word,
//! each line after a bar. Flags that several commands have are `shared` and referred to by name.

use std::{collections::HashMap, sync::LazyLock};

/// A flag.
#[derive(Clone, Debug, Default)]
pub struct FlagDefinition {
    /// The long name.
    pub name: String,
    /// The short form.
    pub short: Option<char>,
    /// The type: `string`, `bool`, `stringSlice` and so on.
    pub kind: String,
    /// The default as help prints it.
    pub default: String,
    /// The value when the flag has none (`--flag` alone).
    pub bare: Option<String>,
    /// The description.
    pub usage: String,
    /// Whether help leaves it out.
    pub hidden: bool,
    /// Whether the command refuses to run without it.
    pub required: bool,
    /// The deprecation message, if any.
    pub deprecated: String,
    /// The deprecation message of the short form, if any.
    pub short_deprecated: String,
}

/// A command.
#[derive(Clone, Debug, Default)]
pub struct CommandDefinition {
    /// The words from `kubectl` on.
    pub path: String,
    /// The usage line, from the command's own name on.
    pub usage: String,
    /// One line about the command.
    pub short: String,
    /// The description.
    pub long: String,
    /// Examples.
    pub example: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Wrong names for which the command is suggested.
    pub suggest_for: Vec<String>,
    /// The words that completion offers.
    pub arguments: Vec<String>,
    /// The options of the `options` line.
    pub options: Vec<String>,
    /// Its own flags, by name.
    pub flags: Vec<FlagDefinition>,
    /// Flags that its subcommands have too.
    pub persistent: Vec<FlagDefinition>,
}

/// All commands, in the order in which suggestions list them.
#[derive(Debug, Default)]
pub struct CommandTable {
    /// The commands; a parent stands before its subcommands.
    pub commands: Vec<CommandDefinition>,
}

static TABLE: LazyLock<CommandTable> = LazyLock::new(|| parse_table(include_str!("commands.txt")));

/// The table.
pub fn command_table() -> &'static CommandTable {
    &TABLE
}

impl CommandDefinition {
    /// The last word of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit(' ').next().unwrap_or_default()
    }

    /// Whether the `options` line has this word.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option)
    }

    /// The path of the parent; empty for the root.
    pub fn parent_path(&self) -> &str {
        self.path.rsplit_once(' ').map_or("", |(parent, _)| parent)
    }
}

impl CommandTable {
    /// Returns a command by its path.
    pub fn command(&self, path: &str) -> Option<&CommandDefinition> {
        self.commands.iter().find(|command| command.path == path)
    }

    /// The direct subcommands of a path, in table order.
    pub fn subcommands(&self, path: &str) -> Vec<&CommandDefinition> {
        self.commands.iter().filter(|command| command.parent_path() == path && command.path != path).collect()
    }

    /// The flags that a command accepts: its own and the persistent ones of its parents, those nearer first.
    pub fn flags_of(&self, path: &str) -> Vec<&FlagDefinition> {
        let mut flags: Vec<&FlagDefinition> = Vec::new();
        let mut at = path;
        while let Some(command) = self.command(at) {
            let own = if at == path { command.flags.as_slice() } else { &[] };
            for flag in own.iter().chain(&command.persistent) {
                if !flags.iter().any(|known| known.name == flag.name) {
                    flags.push(flag);
                }
            }
            at = command.parent_path();
        }
        flags
    }
}

fn parse_table(text: &str) -> CommandTable {
    let mut shared: HashMap<&str, FlagDefinition> = HashMap::new();
    let mut table = CommandTable::default();
    let mut block: Option<&str> = None;
    for line in text.lines() {
        if let (Some(field), Some(content)) = (block, line.strip_prefix('|')) {
            if let Some(command) = table.commands.last_mut() {
                append_line(command, field, content);
            }
            continue;
        }
        let (word, value) = line.split_once('\t').unwrap_or((line, ""));
        block = ["short", "long", "example"].contains(&word).then_some(word);
        match word {
            "shared" => {
                let (key, row) = value.split_once('\t').unwrap_or((value, ""));
                shared.insert(key, parse_flag(row));
            }
            "command" => table.commands.push(CommandDefinition { path: value.to_owned(), ..Default::default() }),
            _ => {
                if let Some(command) = table.commands.last_mut() {
                    parse_field(command, word, value, &shared);
                }
            }
        }
    }
    for command in &mut table.commands {
        command.flags.sort_by(|a, b| a.name.cmp(&b.name));
        command.persistent.sort_by(|a, b| a.name.cmp(&b.name));
    }
    table
}

fn append_line(command: &mut CommandDefinition, field: &str, content: &str) {
    let text = match field {
        "short" => &mut command.short,
        "long" => &mut command.long,
        _ => &mut command.example,
    };
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(content);
}

fn parse_field(command: &mut CommandDefinition, word: &str, value: &str, shared: &HashMap<&str, FlagDefinition>) {
    let words = || value.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match word {
        "use" => command.usage = value.to_owned(),
        "short" => command.short = value.to_owned(),
        "long" => command.long = value.to_owned(),
        "example" => command.example = value.to_owned(),
        "aliases" => command.aliases = words(),
        "suggest" => command.suggest_for = words(),
        "arguments" => command.arguments = words(),
        "options" => command.options = words(),
        "flag" => command.flags.push(parse_flag(value)),
        "persistent" => command.persistent.push(parse_flag(value)),
        "flags" => command.flags.extend(value.split(' ').filter_map(|key| shared.get(key).cloned())),
        _ => {}
    }
}

fn parse_flag(row: &str) -> FlagDefinition {
    let mut cells = row.split('\t').map(unescape);
    let mut next = || cells.next().unwrap_or_default();
    let (names, kind, default, options) = (next(), next(), next(), next());
    let (usage, deprecated, short_deprecated) = (next(), next(), next());
    let (name, short) = names.split_once(',').unwrap_or((&names, ""));
    let mut flag = FlagDefinition {
        name: name.to_owned(),
        short: short.chars().next(),
        kind,
        default,
        usage,
        deprecated,
        short_deprecated,
        ..Default::default()
    };
    for option in options.split(' ') {
        match option.split_once('=') {
            Some(("bare", value)) => flag.bare = Some(value.to_owned()),
            _ => {
                flag.hidden |= option == "hidden";
                flag.required |= option == "required";
            }
        }
    }
    flag
}

fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => out.push(match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => '\\',
            }),
            (other, false) => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_own_shared_and_inherited_flags() {
        let flags = command_table().flags_of("kubectl create deployment");
        let find = |name: &str| flags.iter().find(|flag| flag.name == name).unwrap();
        assert_eq!(find("image").kind, "stringSlice");
        assert_eq!(find("dry-run").bare.as_deref(), Some("unchanged"));
        assert_eq!(find("namespace").short, Some('n'));
        assert!(command_table().command("kubectl get").unwrap().long.contains('\n'));
    }
}
