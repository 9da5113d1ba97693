//! `kubectl edit`, `create --edit` and `apply edit-last-applied`: objects in the user's editor, until they are accepted.

use std::{path::PathBuf, process::Command};

use api::{Value, json::go_quote};
use serde_json::json;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    last_applied::set_last_applied,
    merge_patch::{diff_merge, diff_strategic, type_of_object},
    object::{self, LAST_APPLIED, ObjectFields, name_of},
    outln,
    printers::{ObjectPrinter, format_json},
    resource::{PatchKind, RequestOptions, ResourceBuilder, ResourceInfo, Validation, decode_documents},
    session::Session,
};

/// The treatment of an edited object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditMode {
    Patch,
    Create,
    LastApplied,
}

/// `kubectl edit`
pub fn run(session: &Session) -> CommandResult {
    let infos = build(session, session.arguments())?;
    if infos.is_empty() {
        crate::bail!("edit cancelled, no objects found");
    }
    ObjectEditor::new(session, EditMode::Patch)?.edit(infos)
}

/// `kubectl create --edit`
pub fn run_create(session: &Session) -> CommandResult {
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    builder.continue_on_error = true;
    let editor = ObjectEditor::new(session, EditMode::Create)?;
    builder.visit(session, &mut |info| editor.edit(vec![info]))
}

/// `kubectl apply edit-last-applied`
pub fn run_edit_last_applied(session: &Session) -> CommandResult {
    let mut found = Vec::new();
    for info in build(session, session.arguments())? {
        let annotation = info.object.map("metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
        let Some(text) = annotation.and_then(Value::as_str) else { continue };
        let object: Value = serde_json::from_str(text).map_err(|error| {
            CommandError::new(format!("the last-applied-configuration annotation is invalid: {error}"))
        })?;
        found.push(ResourceInfo { object, ..info });
    }
    if found.is_empty() {
        crate::bail!(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command \
             `kubectl apply set-last-applied --create-annotation`"
        );
    }
    ObjectEditor::new(session, EditMode::LastApplied)?.edit(found)
}

fn build(session: &Session, arguments: &[String]) -> CommandResult<Vec<ResourceInfo>> {
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = arguments.to_vec();
    builder.allow_empty_selector = true;
    builder.latest = true;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.subresource = session.flags.string("subresource");
    builder.infos(session)
}

struct ObjectEditor<'a> {
    session: &'a Session,
    mode: EditMode,
    json: bool,
    options: RequestOptions,
    namespace: String,
}

/// The outcome of one round.
#[derive(Default)]
struct EditRound {
    /// Comments for the next one.
    reasons: Vec<(String, Vec<String>)>,
    retryable: usize,
    not_found: usize,
    invalid: bool,
}

impl<'a> ObjectEditor<'a> {
    fn new(session: &'a Session, mode: EditMode) -> CommandResult<Self> {
        let flags = &session.flags;
        if flags.bool("output-patch") && mode != EditMode::Patch {
            crate::bail!("the edit mode doesn't support output the patch");
        }
        let validation = if flags.has("validate") { Validation::from_flags(flags)? } else { Validation::Strict };
        let options = RequestOptions {
            field_manager: flags.string("field-manager"),
            field_validation: validation.parameter().to_owned(),
            ..Default::default()
        };
        let namespace = session.namespace()?.0;
        let output = flags.string("output");
        if !["", "json", "kyaml", "yaml"].contains(&output.as_str()) {
            crate::bail!(
                "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,yaml",
                api::json::go_quote(&output)
            );
        }
        Ok(ObjectEditor { session, mode, json: output == "json", options, namespace })
    }

    /// Edits until the changes are accepted, cancelled or refused for good.
    fn edit(&self, mut infos: Vec<ResourceInfo>) -> CommandResult {
        let managed: Vec<Value> = infos.iter_mut().map(|info| take_managed_fields(&mut info.object)).collect();
        let original = self.print(&infos);
        let mut edited = String::new();
        let mut previous: Option<PathBuf> = None;
        let mut round = EditRound::default();
        let mut failed = false;
        loop {
            let header = if self.json { String::new() } else { self.header(&round.reasons) };
            let body = if failed { strip_comment_lines(&edited) } else { original.clone() };
            let (text, file) =
                self.launch(&format!("{header}{body}")).map_err(|error| keep(error, previous.as_ref()))?;
            if failed && same_content(&edited, &text) {
                return Err(keep(CommandError::new("Edit cancelled, no valid changes were saved."), Some(&file)));
            }
            edited = text;
            if let Some(previous) = previous.take() {
                remove(&previous);
            }
            round = EditRound::default();
            if let Err(error) = self.check(&edited) {
                errln!("{}", round.note_invalid(&infos[0], &[format!("The edited file failed validation: {error}")]));
                (failed, previous) = (true, Some(file));
                continue;
            }
            if same_content(&original, &edited) {
                remove(&file);
                errln!("Edit cancelled, no changes made.");
                return Ok(());
            }
            if strip_comment_lines(&edited).trim().is_empty() {
                remove(&file);
                errln!("Edit cancelled, saved file was empty.");
                return Ok(());
            }
            previous = Some(file.clone());
            let updated = match self.parse(&edited) {
                Ok(updated) => updated,
                Err(error) => {
                    round.reasons.push((format!("The edited file had a syntax error: {error}"), Vec::new()));
                    failed = true;
                    continue;
                }
            };
            self.submit(&infos, &managed, updated, &mut round).map_err(|error| keep(error, Some(&file)))?;
            if round.retryable > 0 {
                errln!("You can run `kubectl replace -f {}` to try this update again.", file.display());
                return Err(CommandError::Exit);
            }
            if round.not_found > 0 {
                let shown = go_quote(&file.to_string_lossy());
                errln!("The edits you made on deleted resources have been saved to {shown}");
                return Err(CommandError::Exit);
            }
            if !round.invalid {
                remove(&file);
                return Ok(());
            }
            failed = true;
        }
    }

    fn print(&self, infos: &[ResourceInfo]) -> String {
        let object = match infos {
            [one] => one.object.clone(),
            several => {
                let items: Vec<&Value> = several.iter().map(|info| &info.object).collect();
                json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
            }
        };
        if self.json { format!("{}\n", format_json(&object).trim_end()) } else { api::yaml::write_document(&object) }
    }

    fn header(&self, reasons: &[(String, Vec<String>)]) -> String {
        let mut text = match self.mode {
            EditMode::LastApplied => {
                "# Please edit the 'last-applied-configuration' annotations below.\n# Lines beginning with a '#' will be \
                 ignored, and an empty file will abort the edit.\n#\n"
            }
            _ => {
                "# Please edit the object below. Lines beginning with a '#' will be ignored,\n# and an empty file will \
                 abort the edit. If an error occurs while saving this file will be\n# reopened with the relevant \
                 failures.\n#\n"
            }
        }
        .to_owned();
        for (head, causes) in reasons {
            let colon = if causes.is_empty() { "" } else { ":" };
            text += &format!("# {}{colon}\n", head.trim_end().replace('\n', "\n# "));
            causes.iter().for_each(|cause| text += &format!("# * {}\n", cause.replace('\n', "\n# ")));
            text += "#\n";
        }
        text
    }

    /// Opens the editor on a temporary file.
    fn launch(&self, text: &str) -> CommandResult<(String, PathBuf)> {
        let suffix = if self.json { ".json" } else { ".yaml" };
        let made = tempfile::Builder::new()
            .prefix(&crate::files::temporary_name("kubectl-edit-"))
            .rand_bytes(0)
            .suffix(suffix)
            .tempfile();
        let wrong = |error: &std::io::Error| CommandError::new(crate::files::os_error(error));
        let file = made.map_err(|error| wrong(&error))?;
        let path = file.into_temp_path().keep().map_err(|error| wrong(&error.error))?;
        let windows = self.session.flags.bool("windows-line-endings");
        let text = if windows { text.replace('\n', "\r\n") } else { text.to_owned() };
        std::fs::write(&path, text).map_err(|error| wrong(&error))?;
        run_editor(&path)?;
        let edited = std::fs::read(&path).map_err(|error| wrong(&error))?;
        let edited = String::from_utf8_lossy(&edited);
        Ok((if windows { edited.replace("\r\n", "\n") } else { edited.into_owned() }, path))
    }

    fn check(&self, text: &str) -> CommandResult {
        if self.options.field_validation == "Ignore" {
            return Ok(());
        }
        let documents = decode_documents(strip_comment_lines(text).as_bytes(), "edited-file")?;
        if documents.is_empty() {
            crate::bail!("EOF");
        }
        documents.iter().try_for_each(|object| crate::resource::check_object_kind(object, "edited-file"))
    }

    fn parse(&self, text: &str) -> CommandResult<Vec<ResourceInfo>> {
        let mut infos = Vec::new();
        for document in decode_documents(text.as_bytes(), "edited-file")? {
            let objects = if object::is_list(&document) { document.list("items").to_vec() } else { vec![document] };
            for object in objects {
                let mut info = ResourceInfo::from_object(self.session.mapping_of(&object)?, object);
                if info.mapping.namespaced && info.namespace.is_empty() {
                    info.namespace.clone_from(&self.namespace);
                    object::set_path(&mut info.object, "metadata.namespace", self.namespace.clone().into());
                }
                info.subresource = self.session.flags.string("subresource");
                infos.push(info);
            }
        }
        Ok(infos)
    }

    fn submit(
        &self,
        originals: &[ResourceInfo],
        managed: &[Value],
        updated: Vec<ResourceInfo>,
        round: &mut EditRound,
    ) -> CommandResult {
        for mut info in updated {
            let uid = info.object.text("metadata.uid").to_owned();
            let at = originals.iter().position(|original| original.object.text("metadata.uid") == uid);
            let restore = |object: &mut Value| {
                if let Some(fields) = at.and_then(|at| managed.get(at)).filter(|fields| !fields.is_null()) {
                    object::set_path(object, "metadata.managedFields", fields.clone());
                }
            };
            restore(&mut info.object);
            if self.session.flags.bool("save-config") {
                set_last_applied(&mut info.object);
            }
            super::record::record_command(self.session, &mut info.object);
            if self.mode == EditMode::Create {
                let created = info.create_from_manifest(self.session.client()?, &info.object, &self.options)?;
                self.printer("created")?.print(&created)?;
                continue;
            }
            let Some(original) = at.and_then(|at| originals.get(at)) else {
                crate::bail!("no original object found for {}", info.object);
            };
            let mut before = original.object.clone();
            restore(&mut before);
            if before == info.object {
                self.printer("skipped")?.print(&info.object)?;
            } else if self.mode == EditMode::LastApplied {
                self.annotate(&info)?;
                self.printer("edited")?.print(&info.object)?;
            } else {
                self.patch(&before, &info, round)?;
            }
        }
        Ok(())
    }

    fn printer(&self, operation: &str) -> CommandResult<ObjectPrinter> {
        ObjectPrinter::from_flags(&self.session.flags, operation)
    }

    fn annotate(&self, info: &ResourceInfo) -> CommandResult {
        let text = format!("{}\n", info.object);
        let patch = json!({"metadata": {"annotations": {LAST_APPLIED: text}}});
        info.patch(self.session.client()?, PatchKind::Merge, patch.to_string(), &self.options).map(drop)
    }

    fn patch(&self, before: &Value, info: &ResourceInfo, round: &mut EditRound) -> CommandResult {
        let fixed = ["apiVersion", "kind", "metadata.name"];
        if fixed.iter().any(|field| before.at(field) != info.object.at(field)) {
            crate::bail!("At least one of apiVersion, kind and name was changed");
        }
        let (kind, patch) = match type_of_object(&info.object) {
            Some(ty) => (PatchKind::Strategic, diff_strategic(ty, before, &info.object)),
            None => (PatchKind::Merge, diff_merge(before, &info.object)),
        };
        if self.session.flags.bool("output-patch") {
            outln!("Patch: {patch}");
        }
        match info.patch(self.session.client()?, kind, patch.to_string(), &self.options) {
            Ok(patched) => self.printer("edited")?.print(&patched),
            Err(error) => {
                errln!("{}", round.note_error(info, &error));
                Ok(())
            }
        }
    }
}

impl EditRound {
    fn note_invalid(&mut self, info: &ResourceInfo, causes: &[String]) -> String {
        let name = format!("{} {}", info.mapping.qualified_resource(), go_quote(name_of(&info.object)));
        self.invalid = true;
        self.reasons.push((format!("{name} was not valid"), causes.to_vec()));
        format!("error: {name} is invalid")
    }

    fn note_error(&mut self, info: &ResourceInfo, error: &CommandError) -> String {
        let name = format!("{} {}", info.mapping.qualified_resource(), go_quote(&info.name));
        match (error.reason(), error) {
            ("Invalid", CommandError::Status(status)) => {
                let causes: Vec<String> =
                    status.causes().into_iter().map(|(field, message)| format!("{field}: {message}")).collect();
                self.note_invalid(info, &causes)
            }
            ("NotFound", _) => {
                self.not_found += 1;
                format!("error: {name} could not be found on the server")
            }
            _ => {
                self.retryable += 1;
                format!("error: {name} could not be patched: {error}")
            }
        }
    }
}

fn take_managed_fields(object: &mut Value) -> Value {
    let fields = object.at("metadata.managedFields").cloned().unwrap_or_default();
    object::remove_path(object, "metadata.managedFields");
    fields
}

fn keep(error: CommandError, file: Option<&PathBuf>) -> CommandError {
    if let Some(file) = file.filter(|file| file.exists()) {
        errln!("A copy of your changes has been stored to {}", go_quote(&file.to_string_lossy()));
    }
    error
}

fn remove(file: &PathBuf) {
    // It is a temporary file; a failure leaves it where such files are.
    let _ = std::fs::remove_file(file);
}

fn strip_comment_lines(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
}

/// Whether two texts differ in comments and layout only.
fn same_content(a: &str, b: &str) -> bool {
    let parse = |text: &str| api::yaml::parse(text.as_bytes()).ok().map(|document| document.value);
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a == b,
        _ => strip_comment_lines(a) == strip_comment_lines(b),
    }
}

/// Runs the editor of the environment.
fn run_editor(path: &std::path::Path) -> CommandResult {
    let variables = ["KUBE_EDITOR", "EDITOR"];
    let editor = variables.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let mut command = if editor.contains(['"', '\'', '\\']) && editor.contains(' ') {
        let shell = std::env::var("SHELL").ok().filter(|shell| !shell.is_empty());
        let mut command = Command::new(shell.unwrap_or_else(|| "/bin/bash".to_owned()));
        command.arg("-c").arg(format!("{editor} {}", go_quote(&path.to_string_lossy())));
        command
    } else {
        let mut words = editor.split(' ').filter(|word| !word.is_empty());
        let mut command = Command::new(words.next().unwrap_or("vi"));
        command.args(words).arg(path);
        command
    };
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !editor.contains('/') => {
            crate::bail!("unable to launch the editor {}", go_quote(&editor))
        }
        _ => crate::bail!("there was a problem with the editor {}", go_quote(&editor)),
    }
}
