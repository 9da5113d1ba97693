//! Writing changed entries back to the files they come from.

use std::path::{Path, PathBuf};

use api::{Map, Value};

use super::{Kubeconfig, LoadingRules, SECTIONS, load_file};
use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
};

/// The file that an entry is in, or that a new one goes to.
pub fn entry_file(config: &Kubeconfig, rules: &LoadingRules, section: &'static str, name: &str) -> PathBuf {
    config.origins.get(&(section, name.to_owned())).cloned().unwrap_or_else(|| rules.default_file())
}

/// Writes a file, with its directory.
pub fn write_config(path: &Path, config: &Kubeconfig) -> CommandResult {
    let wrong = |error: std::io::Error| CommandError::new(format!("open {}: {}", path.display(), os_error(&error)));
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(wrong)?;
    }
    let text = api::yaml::write_document(&config.to_value());
    std::fs::write(path, text).map_err(wrong)?;
    restrict_access(path);
    Ok(())
}

fn restrict_access(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // A file system without permissions keeps the file as it is.
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
}

/// Writes the difference between two configurations to the files that the entries are in.
pub fn modify_config(rules: &LoadingRules, before: &Kubeconfig, after: &Kubeconfig) -> CommandResult {
    if before.current_context != after.current_context {
        write_current_context(rules, &after.current_context)?;
    }
    for (section, _) in SECTIONS {
        for (name, entry) in after.section(section) {
            if before.section(section).get(name) != Some(entry) {
                let file = entry_file(before, rules, section, name);
                change_file(&file, |config| drop(config.section_mut(section).insert(name.clone(), entry.clone())))?;
            }
        }
        for name in before.section(section).keys().filter(|name| !after.section(section).contains_key(*name)) {
            let file = entry_file(before, rules, section, name);
            change_file(&file, |config| drop(config.section_mut(section).remove(name)))?;
        }
    }
    if before.preferences != after.preferences {
        change_file(&rules.default_file(), |config| config.preferences.clone_from(&after.preferences))?;
    }
    if before.extensions != after.extensions {
        change_file(&rules.default_file(), |config| config.extensions.clone_from(&after.extensions))?;
    }
    Ok(())
}

/// Makes paths relative to the entry's file where they are below its directory.
pub fn relativize_entry(config: &mut Kubeconfig, rules: &LoadingRules, section: &'static str, name: &str) {
    let file = entry_file(config, rules, section, name);
    let Some(base) = std::path::absolute(&file).ok().and_then(|file| file.parent().map(Path::to_owned)) else { return };
    let Some(entry) = config.section_mut(section).get_mut(name) else { return };
    for field in ["certificate-authority", "client-certificate", "client-key", "tokenFile"] {
        let Some(path) = entry.get(field).and_then(Value::as_str) else { continue };
        if let Ok(relative) = Path::new(path).strip_prefix(&base) {
            let relative = relative.display().to_string();
            entry.insert(field.to_owned(), relative.into());
        }
    }
}

fn change_file(path: &Path, change: impl FnOnce(&mut Kubeconfig)) -> CommandResult {
    let mut config = load_file(path)?.unwrap_or_default();
    change(&mut config);
    write_config(path, &config)
}

/// Sets the current context in the first file that has one.
fn write_current_context(rules: &LoadingRules, context: &str) -> CommandResult {
    for path in rules.files() {
        if load_file(&path)?.is_some_and(|config| !config.current_context.is_empty()) {
            return change_file(&path, |config| context.clone_into(&mut config.current_context));
        }
    }
    change_file(&rules.default_file(), |config| context.clone_into(&mut config.current_context))
}

/// Hides credentials for printing.
pub fn redact_entry(entry: &mut Map) {
    for field in ["certificate-authority-data", "client-certificate-data", "client-key-data"] {
        if entry.get(field).and_then(Value::as_str).is_some_and(|data| !data.is_empty()) {
            let word =
                if field == "certificate-authority-data" || field.starts_with("client") { "DATA+OMITTED" } else { "" };
            entry.insert(field.to_owned(), word.into());
        }
    }
    for field in ["token", "password"] {
        if entry.get(field).and_then(Value::as_str).is_some_and(|data| !data.is_empty()) {
            entry.insert(field.to_owned(), "REDACTED".into());
        }
    }
}
