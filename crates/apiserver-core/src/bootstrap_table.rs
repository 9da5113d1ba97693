//! Reads the text tables of bootstrap objects: rules, subjects and lines.

use api::{Value, status::Status};
use serde_json::json;

/// The error of a malformed line. Tables are part of the binary, so users do not see it.
pub fn malformed_line(line: &str) -> Status {
    Status::internal_error(format!("bootstrap table: malformed line: {line}"))
}

/// Returns the lines of a table without comments and empty lines.
pub fn table_lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Parses `a,b` as a JSON list; `core` is the empty group.
pub fn parse_list(text: &str) -> Value {
    text.split(',').map(|part| if part == "core" { "" } else { part }).collect()
}

/// A rule of a role or flow schema.
pub enum TableRule<'a> {
    /// Verbs and non-resource URLs.
    NonResource(&'a str, &'a str),
    /// Verbs, groups, resources, and the words after them.
    Resource(&'a str, &'a str, &'a str, Vec<&'a str>),
}

/// Parses an indented line as a rule.
pub fn parse_rule(line: &str) -> Option<TableRule<'_>> {
    let mut words = line.strip_prefix("  ")?.split(' ');
    let (verbs, second, third) = (words.next()?, words.next()?, words.next()?);
    Some(match second {
        "url" => TableRule::NonResource(verbs, third),
        groups => TableRule::Resource(verbs, groups, third, words.collect()),
    })
}

/// Parses `user:X`, `group:X` or `account:NAMESPACE/NAME` as kind, namespace and name.
pub fn parse_subject(text: &str) -> Option<(&'static str, &str, &str)> {
    let (kind, name) = text.split_once(':')?;
    match kind {
        "user" => Some(("User", "", name)),
        "group" => Some(("Group", "", name)),
        "account" => name.split_once('/').map(|(namespace, name)| ("ServiceAccount", namespace, name)),
        _ => None,
    }
}

/// Returns the metadata of a bootstrap object.
pub fn object_metadata(name: &str) -> Value {
    json!({"name": name})
}
