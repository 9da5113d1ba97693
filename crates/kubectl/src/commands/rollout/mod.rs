//! `kubectl rollout`

mod history;
mod status;
mod undo;

use api::Value;
use serde_json::json;

pub use history::run as run_history;
pub use status::run as run_status;
pub use undo::run as run_undo;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    merge_patch::{diff_strategic, type_of_object},
    object::{self, ObjectFields},
    printers::ObjectPrinter,
    resource::{PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// The builder of all rollout commands.
fn make_builder(session: &Session) -> CommandResult<ResourceBuilder> {
    let mut builder = ResourceBuilder::from_session(session)?;
    if session.arguments().is_empty() && !builder.has_files() {
        crate::bail!("required resource not specified");
    }
    builder.arguments = session.arguments().to_vec();
    builder.allow_empty_selector = true;
    builder.continue_on_error = true;
    builder.latest = true;
    builder.flatten = true;
    Ok(builder)
}

/// The name of an object in errors.
fn subject(info: &ResourceInfo) -> String {
    format!("{} \"{}\"", info.mapping.qualified_resource(), info.name)
}

/// Changes objects one by one; `change` edits the object or says why it does not.
fn change_objects(
    session: &Session,
    operation: &str,
    change: &dyn Fn(&mut Value) -> Result<(), CommandError>,
) -> CommandResult {
    let printer = ObjectPrinter::from_flags(&session.flags, operation)?;
    let builder = make_builder(session)?;
    let result = builder.build(session)?;
    let mut errors = result.errors;
    if result.infos.is_empty() && errors.is_empty() {
        errln!("No resources found in {} namespace.", builder.namespace);
    }
    for mut info in result.infos {
        let before = info.object.clone();
        if let Err(error) = change(&mut info.object) {
            errors.push(CommandError::new(format!("error: {} {error}", subject(&info))));
            continue;
        }
        let Some(ty) = type_of_object(&before) else {
            errors.push(CommandError::new(format!("error: {} {operation} is not supported", subject(&info))));
            continue;
        };
        let patch = diff_strategic(ty, &before, &info.object);
        if patch == json!({}) {
            let text = format!(
                "failed to create patch for {}: if restart has already been triggered within the past second, please wait before attempting to trigger another",
                info.name
            );
            errors.push(CommandError::new(text));
            continue;
        }
        let options = RequestOptions { field_manager: session.flags.string("field-manager"), ..Default::default() };
        match info.patch(session.client()?, PatchKind::Strategic, patch.to_string(), &options) {
            Ok(patched) => printer.print(&patched)?,
            Err(error) => errors.push(CommandError::new(format!("failed to patch: {error}"))),
        }
    }
    CommandError::join(errors)
}

fn unsupported<T>(object: &Value, what: &str) -> Result<T, CommandError> {
    let _ = object;
    Err(CommandError::new(format!("{what} is not supported")))
}

/// `rollout pause`
pub fn run_pause(session: &Session) -> CommandResult {
    change_objects(session, "paused", &|object| match object.text("kind") {
        "Deployment" if object.flag("spec.paused") => Err(CommandError::new("is already paused")),
        "Deployment" => {
            object::set_path(object, "spec.paused", true.into());
            Ok(())
        }
        _ => unsupported(object, "pausing"),
    })
}

/// `rollout resume`
pub fn run_resume(session: &Session) -> CommandResult {
    change_objects(session, "resumed", &|object| match object.text("kind") {
        "Deployment" if !object.flag("spec.paused") => Err(CommandError::new("is not paused")),
        "Deployment" => {
            object::remove_path(object, "spec.paused");
            Ok(())
        }
        _ => unsupported(object, "resuming"),
    })
}

/// `rollout restart`
pub fn run_restart(session: &Session) -> CommandResult {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    change_objects(session, "restarted", &|object| match object.text("kind") {
        "Deployment" if object.flag("spec.paused") => {
            Err(CommandError::new("can't restart paused deployment (run rollout resume first)"))
        }
        "Deployment" | "DaemonSet" | "StatefulSet" => {
            if object.pointer("/spec/template/metadata/annotations").is_none_or(Value::is_null) {
                object::set_path(object, "spec.template.metadata.annotations", json!({}));
            }
            if let Some(annotations) =
                object.pointer_mut("/spec/template/metadata/annotations").and_then(Value::as_object_mut)
            {
                annotations.insert("kubectl.kubernetes.io/restartedAt".into(), now.clone().into());
            }
            Ok(())
        }
        _ => unsupported(object, "restarting"),
    })
}
