//! Completion of flags: their names and their values.

use super::{CompletionDirective, CompletionList, cluster_names};
use crate::{command_table::FlagDefinition, session::Session};

/// The owner of the last word.
#[derive(Debug)]
pub enum FlagTarget<'a> {
    /// The value of a flag. The shells put back the name before an equals sign.
    Value {
        /// The flag.
        flag: &'a FlagDefinition,
        /// The beginning of the value.
        text: &'a str,
    },
    /// The name of a flag.
    Name(&'a str),
    /// A positional argument.
    Positional,
}

impl FlagTarget<'_> {
    /// The arguments without the flag whose value is being completed.
    pub fn arguments<'a>(&self, all: &'a [String]) -> &'a [String] {
        match self {
            FlagTarget::Value { .. } if all.last().is_some_and(|last| last.starts_with('-') && !last.contains('=')) => {
                &all[..all.len() - 1]
            }
            _ => all,
        }
    }
}

/// Finds what the last word belongs to.
pub fn find_target<'a>(flags: &[&'a FlagDefinition], before: &[String], last: &'a str) -> FlagTarget<'a> {
    if before.iter().any(|argument| argument == "--") {
        return FlagTarget::Positional;
    }
    if let Some((name, text)) = last.split_once('=').filter(|_| last.starts_with('-')) {
        return match find_flag(flags, name) {
            Some(flag) => FlagTarget::Value { flag, text },
            None => FlagTarget::Positional,
        };
    }
    if last.starts_with('-') {
        return FlagTarget::Name(last);
    }
    let waiting = before.last().filter(|word| word.starts_with('-') && !word.contains('='));
    match waiting.and_then(|word| find_flag(flags, word)).filter(|flag| flag.bare.is_none()) {
        Some(flag) => FlagTarget::Value { flag, text: last },
        None => FlagTarget::Positional,
    }
}

/// The flag of `--name`, `-n` or the last letter of a cluster.
fn find_flag<'a>(flags: &[&'a FlagDefinition], word: &str) -> Option<&'a FlagDefinition> {
    match word.strip_prefix("--") {
        Some(name) => flags.iter().find(|flag| flag.name == name).copied(),
        None => {
            let short = word.strip_prefix('-')?.chars().last()?;
            flags.iter().find(|flag| flag.short == Some(short)).copied()
        }
    }
}

fn is_repeatable(flag: &FlagDefinition) -> bool {
    flag.kind.contains("Slice") || flag.kind.contains("Array") || flag.kind.starts_with("stringTo")
}

fn names_of(flag: &FlagDefinition, text: &str) -> Vec<String> {
    if flag.hidden || !flag.deprecated.is_empty() {
        return Vec::new();
    }
    let long = format!("--{}", flag.name);
    let short = flag.short.filter(|_| flag.short_deprecated.is_empty()).map(|short| format!("-{short}"));
    let forms = [Some(long), short].into_iter().flatten();
    forms.filter(|form| form.starts_with(text)).map(|form| format!("{form}\t{}", flag.usage)).collect()
}

/// Names of flags: required ones alone, as long as one is missing; then those of all commands and the command's own.
pub fn complete_names(session: &Session, flags: &[&FlagDefinition], text: &str) -> CompletionList {
    let mut words = required_names(session, text);
    if words.is_empty() {
        let help = FlagDefinition {
            name: "help".into(),
            short: Some('h'),
            usage: format!("help for {}", session.command.name()),
            ..Default::default()
        };
        let is_own = |flag: &&&FlagDefinition| {
            let command = session.command;
            command.flags.iter().chain(&command.persistent).any(|own| own.name == flag.name)
        };
        let mut own: Vec<&FlagDefinition> = flags.iter().filter(is_own).copied().collect();
        if own.iter().all(|flag| flag.name != "help") {
            own.push(&help);
        }
        let mut inherited: Vec<&FlagDefinition> = flags.iter().filter(|flag| !is_own(flag)).copied().collect();
        for list in [&mut inherited, &mut own] {
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let offered = inherited.into_iter().chain(own);
        let offered = offered.filter(|flag| is_repeatable(flag) || !session.flags.changed(&flag.name));
        words = offered.flat_map(|flag| names_of(flag, text)).collect();
    }
    CompletionList::new(words, CompletionDirective::NO_FILES)
}

/// Names of flags that are required and missing.
pub fn required_names(session: &Session, text: &str) -> Vec<String> {
    let missing = session.command.flags.iter().filter(|flag| flag.required && !session.flags.changed(&flag.name));
    missing.flat_map(|flag| names_of(flag, text)).collect()
}

/// The formats of `get --output`.
const GET_FORMATS: [&str; 14] = [
    "json",
    "yaml",
    "kyaml",
    "name",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "custom-columns",
    "custom-columns-file",
    "wide",
];

/// Values of a flag.
pub fn complete_value(session: &Session, flag: &FlagDefinition, text: &str) -> CompletionList {
    let fixed = |words: &[&str]| words.iter().filter(|word| word.starts_with(text)).map(ToString::to_string).collect();
    let command = session.command.path.trim_start_matches("kubectl ");
    let words: Vec<String> = match (flag.name.as_str(), command) {
        ("namespace", _) => cluster_names::list_names(session, "namespace", text),
        ("context", _) => cluster_names::list_entries(session, "contexts", text),
        ("cluster", _) => cluster_names::list_entries(session, "clusters", text),
        ("user", command) if !command.starts_with("create ") && !command.starts_with("set ") => {
            cluster_names::list_entries(session, "users", text)
        }
        ("output", "get") => fixed(&GET_FORMATS),
        ("subresource", _) => fixed(&["status", "scale", "resize"]),
        ("clusterrole", "create clusterrolebinding") => cluster_names::list_names(session, "clusterrole", text),
        ("container", "exec") => match session.arguments().first() {
            Some(pod) => cluster_names::list_containers(session, pod, text),
            None => Vec::new(),
        },
        ("filename", _) => {
            let extensions = ["json", "yaml", "yml"].map(str::to_owned).to_vec();
            return CompletionList::new(extensions, CompletionDirective::FILE_EXTENSIONS);
        }
        _ => return CompletionList::default(),
    };
    CompletionList::new(words, CompletionDirective::NO_FILES)
}
