//! `kubectl plugin list`

use std::path::Path;

use api::json::go_quote;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    outln,
    plugins::{is_executable, list_plugins},
    session::Session,
    suggestions::find_command,
};

/// Lists plug-ins, with warnings about those that cannot be used.
pub fn run_list(session: &Session) -> CommandResult {
    let plugins = list_plugins(true);
    let mut errors = Vec::new();
    if plugins.is_empty() {
        errors.push("error: unable to find any kubectl plugins in your PATH".to_owned());
    } else {
        outln!("The following compatible plugins are available:\n");
    }
    let mut warnings = 0;
    let mut seen: Vec<(String, String)> = Vec::new();
    for path in &plugins {
        let name = path.rsplit('/').next().unwrap_or(path);
        outln!("{}", if session.flags.bool("name-only") { name } else { path });
        for warning in warnings_of(path, name, &mut seen) {
            errln!("  - {warning}");
            warnings += 1;
        }
    }
    match warnings {
        0 => {}
        1 => errors.push("error: one plugin warning was found".to_owned()),
        count => errors.push(format!("error: {count} plugin warnings were found")),
    }
    if errors.is_empty() { Ok(()) } else { Err(CommandError::new(errors.join("\n"))) }
}

fn warnings_of(path: &str, name: &str, seen: &mut Vec<(String, String)>) -> Vec<String> {
    let mut warnings = Vec::new();
    if !is_executable(Path::new(path)) {
        warnings.push(format!("warning: {path} identified as a kubectl plugin, but it is not executable"));
    }
    match seen.iter().find(|(known, _)| known == name) {
        Some((_, other)) => {
            warnings.push(format!("warning: {path} is overshadowed by a similarly named plugin: {other}"));
        }
        None => seen.push((name.to_owned(), path.to_owned())),
    }
    let words: Vec<String> = name.split('-').skip(1).map(str::to_owned).collect();
    if let Some(found) = find_command(&words).filter(|found| found.command.path != "kubectl") {
        warnings.push(format!("warning: {name} overwrites existing command: {}", go_quote(&found.command.path)));
    }
    warnings
}
