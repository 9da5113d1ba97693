//! Plug-ins: programs named `kubectl-…` on `PATH`.

use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command_table::CommandDefinition,
    errors::{CommandError, CommandResult},
    output::write_err,
    suggestions::CommandMatch,
};

/// The directories of `PATH`, each once.
pub fn search_path() -> Vec<String> {
    let mut directories: Vec<String> = Vec::new();
    for directory in std::env::var("PATH").unwrap_or_default().split(':') {
        if !directory.trim().is_empty() && !directories.iter().any(|known| known == directory) {
            directories.push(directory.to_owned());
        }
    }
    directories
}

/// All files on `PATH` that are named like plug-ins, with the directories that cannot be read.
pub fn list_plugins(report: bool) -> Vec<String> {
    let mut plugins = Vec::new();
    for directory in search_path() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                if report {
                    let cause = crate::files::os_error(&error);
                    write_err(&format!(
                        "Unable to read directory {} from your PATH: open {directory}: {cause}. Skipping...\n",
                        api::json::go_quote(&directory)
                    ));
                }
                continue;
            }
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| !entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("kubectl-"))
            .collect();
        names.sort();
        plugins.extend(names.into_iter().map(|name| format!("{}/{name}", directory.trim_end_matches('/'))));
    }
    plugins
}

/// Whether a file can be run.
pub fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The plug-ins that help lists with the commands.
pub fn list_for_help(command: &CommandDefinition) -> Vec<(String, String)> {
    if command.path != "kubectl" {
        return Vec::new();
    }
    let mut rows: Vec<(String, String)> = Vec::new();
    for path in list_plugins(false).into_iter().filter(|path| is_executable(Path::new(path))) {
        let name = path.rsplit('/').next().unwrap_or_default().trim_start_matches("kubectl-").to_owned();
        let words: Vec<String> = name.split('-').map(|word| word.replace('_', "-")).collect();
        let known = crate::suggestions::find_command(&words).is_some_and(|found| found.command.path != "kubectl");
        let first = words.first().cloned().unwrap_or_default();
        if !known && !rows.iter().any(|(row, _)| *row == first) {
            rows.push((first.clone(), format!("The command {first} is a plugin installed by the user")));
        }
    }
    rows
}

/// Runs the plug-in that the arguments name, if no command does; replaces the process.
pub fn run_plugin_for(arguments: &[String], found: &CommandMatch) -> CommandResult {
    let first = arguments.iter().find(|argument| !argument.starts_with('-')).map(String::as_str);
    if found.command.path == "kubectl" && !matches!(first, Some("help") | None) {
        return run_plugin(arguments, 1);
    }
    let subcommand = found.arguments.first().filter(|argument| !argument.starts_with('-'));
    if found.command.path == "kubectl create" && subcommand.is_some() {
        return run_plugin(arguments, arguments.len() - found.arguments.len() + 1);
    }
    Ok(())
}

/// Looks for the plug-in with the longest name; `minimum` words must be part of it.
fn run_plugin(arguments: &[String], minimum: usize) -> CommandResult {
    let mut words: Vec<String> = Vec::new();
    for argument in arguments {
        if argument.starts_with('-') {
            break;
        }
        words.push(argument.replace('-', "_"));
    }
    if words.is_empty() {
        let Some(flag) = arguments.first() else { return Ok(()) };
        let known = ["--", "-h", "--help"].contains(&flag.as_str());
        let _ = known;
        return Ok(());
    }
    while words.len() >= minimum && !words.is_empty() {
        if let Some(path) = look_up(&format!("kubectl-{}", words.join("-"))) {
            let error = Command::new(&path).args(&arguments[words.len()..]).exec();
            return Err(CommandError::ExitCode(1, format!("Error: {}: {error}", path.display())));
        }
        words.pop();
    }
    Ok(())
}

/// The path of a program: as it is if it names a directory, else the first match on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') { Some(PathBuf::from(name)).filter(|path| is_executable(path)) } else { look_up(name) }
}

fn look_up(name: &str) -> Option<PathBuf> {
    search_path().iter().map(|directory| Path::new(directory).join(name)).find(|path| is_executable(path))
}
