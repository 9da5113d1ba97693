//! The words of the tables beside this file: rules and subjects, and a table line that cannot be read.

use api::{Value, status::Status};
use serde_json::json;

/// A line that is not one of the table's. Tables are part of the program, so it never gets to a user.
pub fn unreadable(line: &str) -> Status {
    Status::internal_error(format!("a table of this program has a line that cannot be read: {line}"))
}

/// The lines that say something.
pub fn of(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// `a,b` as a list.
pub fn list(text: &str) -> Value {
    text.split(',').map(|part| if part == "core" { "" } else { part }).collect()
}

/// What a rule is about.
pub enum Rule<'a> {
    /// Verbs and paths.
    Paths(&'a str, &'a str),
    /// Verbs, groups, resources, and words after them.
    Resources(&'a str, &'a str, &'a str, Vec<&'a str>),
}

/// Reads an indented line.
pub fn rule(line: &str) -> Option<Rule<'_>> {
    let mut words = line.strip_prefix("  ")?.split(' ');
    let (verbs, second, third) = (words.next()?, words.next()?, words.next()?);
    Some(match second {
        "url" => Rule::Paths(verbs, third),
        groups => Rule::Resources(verbs, groups, third, words.collect()),
    })
}

/// `user:X`, `group:X` or `account:NAMESPACE/NAME`: its kind, its namespace and its name.
pub fn subject(text: &str) -> Option<(&'static str, &str, &str)> {
    let (kind, name) = text.split_once(':')?;
    match kind {
        "user" => Some(("User", "", name)),
        "group" => Some(("Group", "", name)),
        "account" => name.split_once('/').map(|(namespace, name)| ("ServiceAccount", namespace, name)),
        _ => None,
    }
}

/// Metadata of an object of a table.
pub fn metadata(name: &str) -> Value {
    json!({"name": name})
}
