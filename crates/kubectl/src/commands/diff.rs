//! `kubectl diff`: what apply would change, shown by a diff program.

use std::{path::Path, process::Command};

use api::{Value, json::go_quote};

use super::apply::{PatchSource, compute_patch, find_prunable, prune_namespaces_note};
use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    printers::omit_managed_fields,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
    usage::usage_error,
};

const MAX_RETRIES: usize = 4;

/// Shows the difference; errors exit with 2, a difference with 1.
pub fn run(session: &Session) -> CommandResult {
    show_difference(session).map_err(|error| match error {
        CommandError::Exit => CommandError::Exit,
        error => {
            let (text, code) = error.report();
            CommandError::ExitCode(code + 1, text)
        }
    })
}

fn show_difference(session: &Session) -> CommandResult {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        return Err(usage_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    if !builder.has_files() {
        crate::bail!("must specify one of -f and -k");
    }
    let server_side = flags.bool("server-side");
    if flags.bool("force-conflicts") && !server_side {
        crate::bail!("--force-conflicts only works with --server-side");
    }
    builder.flatten = true;
    let manager = if server_side && !flags.changed("field-manager") {
        "kubectl".to_owned()
    } else {
        flags.string("field-manager")
    };
    let run = DiffRun {
        session,
        server_side,
        options: RequestOptions {
            dry_run: DryRun::Server,
            field_manager: manager,
            force: server_side && flags.bool("force-conflicts"),
            ..Default::default()
        },
        live: temporary_directory("LIVE-")?,
        merged: temporary_directory("MERGED-")?,
    };
    let (mut visited, mut namespaces) = (Vec::new(), Vec::new());
    builder.visit(session, &mut |info| {
        if info.mapping.namespaced && !namespaces.contains(&info.namespace) {
            namespaces.push(info.namespace.clone());
        }
        visited.extend(run.compare(info)?);
        Ok(())
    })?;
    if flags.bool("prune") {
        prune_namespaces_note(session);
        for info in find_prunable(session, &namespaces, &visited)? {
            run.write_live(&info)?;
        }
    }
    run.run_program()
}

fn temporary_directory(prefix: &str) -> CommandResult<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix(&crate::files::temporary_name(prefix)).rand_bytes(0).tempdir();
    made.map_err(|error| CommandError::new(crate::files::os_error(&error)))
}

/// Writes a document to the file that is named after its object.
fn write_document(directory: &tempfile::TempDir, info: &ResourceInfo, text: String) -> CommandResult {
    let group = if info.mapping.group.is_empty() { String::new() } else { format!("{}.", info.mapping.group) };
    let name = format!("{group}{}.{}.{}.{}", info.mapping.version, info.mapping.kind, info.namespace, info.name);
    let path = directory.path().join(name.replace('/', "_"));
    std::fs::write(&path, text)
        .map_err(|error| CommandError::new(format!("open {}: {}", path.display(), crate::files::os_error(&error))))
}

struct DiffRun<'a> {
    session: &'a Session,
    server_side: bool,
    options: RequestOptions,
    live: tempfile::TempDir,
    merged: tempfile::TempDir,
}

impl DiffRun<'_> {
    /// Writes both versions of an object; returns the UID of the live one.
    fn compare(&self, mut info: ResourceInfo) -> CommandResult<Option<String>> {
        let client = self.session.client()?;
        let mut manifest = info.object.clone();
        // As in the annotation of the last apply, which has always annotations.
        if !self.server_side && manifest.at("metadata.annotations").is_none() {
            crate::object::set_path(&mut manifest, "metadata.annotations", serde_json::json!({}));
        }
        let live = match info.name.as_str() {
            "" => None,
            _ => match info.fetch(client) {
                Ok(live) => Some(live),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            },
        };
        let merged = if self.server_side {
            info.patch(client, PatchKind::Apply, manifest.to_string(), &self.options).inspect_err(|error| {
                if error.is_conflict() {
                    warn_of_changes(&info);
                }
            })?
        } else if let Some(live) = &live {
            info.object = live.clone();
            self.patch(&mut info, &manifest)?
        } else {
            info.create_from_manifest(client, &manifest, &self.options)?
        };
        let uid = live.as_ref().map(|live| live.text("metadata.uid").to_owned());
        self.write(&info, live, Some(merged))?;
        Ok(uid)
    }

    fn patch(&self, info: &mut ResourceInfo, manifest: &Value) -> CommandResult<Value> {
        let client = self.session.client()?;
        let mut tries = 0;
        loop {
            let mut computed = compute_patch(&info.object, manifest, PatchSource::Manifest)?;
            if computed.patch == serde_json::json!({}) {
                return Ok(info.object.clone());
            }
            // The last try overwrites what changed meanwhile.
            if tries == MAX_RETRIES {
                warn_of_changes(info);
            } else {
                let version = info.object.text("metadata.resourceVersion").to_owned();
                crate::object::set_path(&mut computed.patch, "metadata.resourceVersion", version.into());
            }
            match info.patch(client, computed.kind, computed.patch.to_string(), &self.options) {
                Err(error) if error.is_conflict() && tries < MAX_RETRIES => {
                    tries += 1;
                    info.load(client)?;
                }
                outcome => return outcome,
            }
        }
    }

    fn write(&self, info: &ResourceInfo, mut live: Option<Value>, mut merged: Option<Value>) -> CommandResult {
        let flags = &self.session.flags;
        for object in live.iter_mut().chain(&mut merged) {
            if !flags.bool("show-managed-fields") {
                omit_managed_fields(object);
            }
        }
        let masked = info.mapping.kind == "Secret" && info.mapping.version == "v1" && !flags.bool("show-secrets");
        if masked {
            mask_values(live.as_mut(), merged.as_mut());
        }
        // A secret whose values are masked is written even where there is none.
        let absent = if masked { "null\n" } else { "" };
        for (directory, object) in [(&self.live, live), (&self.merged, merged)] {
            let text = object.map_or_else(|| absent.to_owned(), |object| api::yaml::write_document(&object));
            write_document(directory, info, text)?;
        }
        Ok(())
    }

    /// Writes an object that would be pruned, as it is, on one side only.
    fn write_live(&self, info: &ResourceInfo) -> CommandResult {
        write_document(&self.live, info, api::yaml::write_document(&info.object))
    }

    fn run_program(&self) -> CommandResult {
        let (program, arguments) = diff_command(self.live.path(), self.merged.path());
        let status = Command::new(&program).args(arguments).status();
        match status.as_ref().ok().and_then(std::process::ExitStatus::code) {
            Some(0) => Ok(()),
            Some(1) => Err(CommandError::Exit),
            _ => {
                let cause = match status {
                    Ok(status) => format!("exit status {}", status.code().unwrap_or(-1)),
                    Err(_) => "executable file not found in $PATH".to_owned(),
                };
                crate::bail!("failed to run {}: {cause}", go_quote(&program))
            }
        }
    }
}

/// Says that an object is compared although it does not stay as it was read.
fn warn_of_changes(info: &ResourceInfo) {
    let (group, version, kind) = (&info.mapping.group, &info.mapping.version, &info.mapping.kind);
    let text = format!("Object ({group}/{version}, Kind={kind}: {}) keeps changing, diffing without lock", info.name);
    crate::rest::log_line('W', "diff.go:723", &text);
}

/// The diff program and its arguments.
fn diff_command(live: &Path, merged: &Path) -> (String, Vec<String>) {
    let mut arguments = vec![live.to_string_lossy().into_owned(), merged.to_string_lossy().into_owned()];
    let external = std::env::var("KUBECTL_EXTERNAL_DIFF").unwrap_or_default();
    let mut words = external.split(' ');
    let program = words.next().unwrap_or_default();
    if program.is_empty() {
        arguments.splice(0..0, ["-u".to_owned(), "-N".to_owned()]);
        return ("diff".to_owned(), arguments);
    }
    let is_plain =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-=".contains(c));
    arguments.extend(words.filter(is_plain).map(str::to_owned));
    (program.to_owned(), arguments)
}

/// Replaces the values of secrets so that only their change is seen.
fn mask_values(live: Option<&mut Value>, merged: Option<&mut Value>) {
    let (mut live, mut merged) = (live, merged);
    let data = |object: Option<&Value>| object.and_then(|object| object.map("data").cloned()).unwrap_or_default();
    let (before, after) = (data(live.as_deref()), data(merged.as_deref()));
    for (key, value) in &before {
        let mask = if after.get(key).is_some_and(|other| other != value) { "*** (before)" } else { "***" };
        if let Some(live) = &mut live {
            live["data"][key] = mask.into();
        }
    }
    for (key, value) in &after {
        let mask = if before.get(key).is_some_and(|other| other != value) { "*** (after)" } else { "***" };
        if let Some(merged) = &mut merged {
            merged["data"][key] = mask.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_values_are_masked_and_changes_marked() {
        let mut live = json!({"data": {"same": "1", "changed": "1", "gone": "1"}});
        let mut merged = json!({"data": {"same": "1", "changed": "2", "new": "1"}});
        mask_values(Some(&mut live), Some(&mut merged));
        assert_eq!(live, json!({"data": {"same": "***", "changed": "*** (before)", "gone": "***"}}));
        assert_eq!(merged, json!({"data": {"same": "***", "changed": "*** (after)", "new": "***"}}));
    }
}
