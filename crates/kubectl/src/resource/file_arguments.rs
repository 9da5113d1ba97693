//! Expansion of `-f` arguments: files, directories, patterns.

use std::path::Path;

use api::json::go_quote;

use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
};

const EXTENSIONS: [&str; 3] = [".json", ".yaml", ".yml"];

/// The files of one argument, in the order of their names.
pub fn expand_files(argument: &str, recursive: bool) -> CommandResult<Vec<String>> {
    let missing = || CommandError::new(format!("the path {} does not exist", go_quote(argument)));
    let roots = if Path::new(argument).exists() { vec![argument.to_owned()] } else { match_pattern(argument) };
    if roots.is_empty() {
        return Err(missing());
    }
    let mut files = Vec::new();
    for root in &roots {
        let path = Path::new(root);
        if path.is_dir() {
            walk_directory(root, recursive, &mut files)?;
        } else {
            files.push(root.clone());
        }
    }
    if files.is_empty() {
        let roots = roots.join(" ");
        return Err(CommandError::new(format!(
            "error reading [{roots}]: recognized file extensions are [{}]",
            EXTENSIONS.join(" ")
        )));
    }
    Ok(files)
}

fn walk_directory(directory: &str, recursive: bool, files: &mut Vec<String>) -> CommandResult {
    let wrong = |error: std::io::Error| {
        CommandError::new(format!("error reading {}: open {directory}: {}", go_quote(directory), os_error(&error)))
    };
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(wrong)? {
        names.push(entry.map_err(wrong)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        let path = path.strip_prefix("./").filter(|_| directory == ".").unwrap_or(&path).to_owned();
        if Path::new(&path).is_dir() {
            if recursive {
                walk_directory(&path, true, files)?;
            }
        } else if EXTENSIONS.iter().any(|extension| name.ends_with(extension)) {
            files.push(path);
        }
    }
    Ok(())
}

/// The files that match a shell pattern, sorted.
pub fn match_pattern(pattern: &str) -> Vec<String> {
    if !pattern.contains(['*', '?', '[']) {
        return Vec::new();
    }
    let mut found = vec![if pattern.starts_with('/') { "/".to_owned() } else { String::new() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in &found {
            let directory = if base.is_empty() { "." } else { base };
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if matches_name(part.as_bytes(), name.as_bytes()) {
                    let separator = if base.is_empty() || base.ends_with('/') { "" } else { "/" };
                    next.push(format!("{base}{separator}{name}"));
                }
            }
        }
        found = next;
    }
    found.sort();
    found
}

/// Whether a name matches a pattern with `*`, `?` and `[…]`.
pub fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], name) => (0..=name.len()).any(|at| matches_name(rest, &name[at..])),
        ([b'?', rest @ ..], [_, name @ ..]) => matches_name(rest, name),
        ([b'[', rest @ ..], [first, name @ ..]) => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (set, negated) = match rest[..end].strip_prefix(b"^") {
                Some(set) => (set, true),
                None => (&rest[..end], false),
            };
            let mut inside = set.contains(first);
            for window in set.windows(3).filter(|window| window[1] == b'-') {
                inside |= (window[0]..=window[2]).contains(first);
            }
            inside != negated && matches_name(&rest[end + 1..], name)
        }
        ([first, rest @ ..], [other, name @ ..]) => first == other && matches_name(rest, name),
        _ => false,
    }
}
