//! `kubectl set`: changes of parts of objects.

mod downward_api;
mod env;
mod image;
mod resources;
mod selector;
mod service_account;
mod subject;

use api::Value;
use serde_json::json;

pub use env::run as run_env;
pub use image::run as run_image;
pub use resources::run as run_resources;
pub use selector::run as run_selector;
pub use service_account::run as run_service_account;
pub use subject::run as run_subject;

use crate::{
    errors::{CommandError, CommandResult},
    merge_patch::{diff_strategic, type_of_object},
    printers::{ObjectPrinter, typed_value},
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// The error about resources that are no files, with `--local`.
pub const LOCAL_RESOURCES: &str = "error: you must specify resources by --filename when --local is set.
Example resource specifications include:
   '-f rsrc.yaml'
   '--filename=rsrc.json'";

/// A change of objects by one of the `set` commands.
pub struct SetRun<'a> {
    session: &'a Session,
    local: bool,
    dry_run: DryRun,
    printer: ObjectPrinter,
    /// The words before the error of a patch; empty for the server's own.
    failure: &'static str,
    /// Whether a patch without changes is sent too.
    sends_unchanged: bool,
    /// Whether arguments are an error of their own with `--local`, instead of being ignored.
    refuses_local_arguments: bool,
}

impl<'a> SetRun<'a> {
    fn new(session: &'a Session, operation: &str, failure: &'static str) -> CommandResult<Self> {
        let dry_run = DryRun::from_flags(&session.flags)?;
        let printer = ObjectPrinter::from_flags(&session.flags, &format!("{operation}{}", dry_run.suffix()))?;
        let local = session.flags.bool("local");
        if local && dry_run == DryRun::Server {
            crate::bail!("cannot specify --local and --dry-run=server - did you mean --dry-run=client?");
        }
        Ok(SetRun { session, local, dry_run, printer, failure, sends_unchanged: false, refuses_local_arguments: true })
    }

    /// The objects that arguments name.
    fn load(&self, arguments: &[String]) -> CommandResult<Vec<ResourceInfo>> {
        let mut builder = ResourceBuilder::from_session(self.session)?;
        builder.local = self.local;
        builder.flatten = true;
        builder.continue_on_error = true;
        if self.local {
            if !arguments.is_empty() && self.refuses_local_arguments {
                return Err(CommandError::new(LOCAL_RESOURCES));
            }
            builder.select_all = false;
        } else {
            builder.latest = true;
            builder.arguments = arguments.to_vec();
        }
        builder.infos(self.session)
    }

    /// Changes objects, sends the differences and prints the results.
    fn change(
        &self,
        infos: Vec<ResourceInfo>,
        change: &mut dyn FnMut(&mut Value, &mut Vec<CommandError>) -> CommandResult<bool>,
    ) -> CommandResult {
        let mut errors = Vec::new();
        for mut info in infos {
            let before = typed_value(&info.object);
            info.object = before.clone();
            match change(&mut info.object, &mut errors) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    errors.push(CommandError::new(format!("error: {} {error}\n", subject(&info))));
                    continue;
                }
            }
            super::record::record_command(self.session, &mut info.object);
            let Some(ty) = type_of_object(&before) else { continue };
            let patch = diff_strategic(ty, &before, &info.object);
            if patch == json!({}) && !self.sends_unchanged {
                continue;
            }
            if let Err(error) = self.finish(info, &patch) {
                errors.push(error);
            }
        }
        CommandError::join(errors)
    }

    fn finish(&self, info: ResourceInfo, patch: &Value) -> CommandResult {
        if self.local || self.dry_run == DryRun::Client {
            return self.printer.print_typed(&info.object);
        }
        let options = RequestOptions {
            dry_run: self.dry_run,
            field_manager: self.session.flags.string("field-manager"),
            ..Default::default()
        };
        let patched =
            info.patch(self.session.client()?, PatchKind::Strategic, patch.to_string(), &options).map_err(|error| {
                match self.failure {
                    "" => error,
                    words => CommandError::new(format!("{words}{error}")),
                }
            })?;
        self.printer.print_typed(&patched)
    }
}

/// `resource/name`, or what stands for it when the object has not been looked up.
fn subject(info: &ResourceInfo) -> String {
    if !info.mapping.resource.is_empty() {
        return format!("{}/{}", info.mapping.resource, info.name);
    }
    let (group, _, kind) = crate::object::group_version_kind(&info.object);
    let kind = kind.to_lowercase();
    // The line break is upstream's.
    if group.is_empty() { format!("{kind}/{}", info.name) } else { format!("{kind}.{group}/{}\n", info.name) }
}

/// The pod spec of an object that has one.
pub fn pod_spec_mut(object: &mut Value) -> CommandResult<&mut Value> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = match kind.as_str() {
        "Pod" => "/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "Deployment" | "ReplicaSet" | "ReplicationController" | "DaemonSet" | "StatefulSet" | "Job" => {
            "/spec/template/spec"
        }
        _ => {
            let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            let version = version.rsplit('/').next().unwrap_or_default();
            crate::bail!("the object is not a pod or does not have a pod template: *{version}.{kind}")
        }
    };
    object.pointer_mut(path).ok_or_else(|| CommandError::new("the object does not have a pod template"))
}

/// Calls a function with the containers whose name matches; returns whether there was one.
pub fn visit_containers(spec: &mut Value, pattern: &str, visit: &mut dyn FnMut(&mut Value)) -> bool {
    let mut found = false;
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            if crate::resource::matches_name(pattern.as_bytes(), name.as_bytes()) {
                found = true;
                visit(container);
            }
        }
    }
    found
}

/// Splits arguments into resources and `name=value` pairs.
fn split_pairs(arguments: &[String], word: &str) -> CommandResult<(Vec<String>, Vec<String>)> {
    let is_pair = |argument: &String| argument.contains('=') && !argument.starts_with('=') || argument.ends_with('-');
    let first = arguments.iter().position(is_pair).unwrap_or(arguments.len());
    let (resources, pairs) = arguments.split_at(first);
    if let Some(stray) = pairs.iter().find(|argument| !is_pair(argument)) {
        crate::bail!("all resources must be specified before {word} changes: {stray}");
    }
    Ok((resources.to_vec(), pairs.to_vec()))
}
