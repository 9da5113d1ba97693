//! `--record`: the command line in an annotation of the changed object.

use api::Value;

use crate::{object, session::Session};

/// The annotation.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The command line with its flags, as the annotation has it.
pub fn command_line(session: &Session) -> String {
    let mut words = vec![session.command.path.clone()];
    words.extend(session.arguments().iter().cloned());
    words.extend(session.flags.given().map(|(name, value)| format!("--{name}={value}")));
    words.join(" ")
}

/// Sets the annotation if `--record` asks for it, or if the object has it already and the flag is not given.
pub fn record_command(session: &Session, object: &mut Value) {
    if !session.flags.has("record") || !session.flags.bool("record") {
        return;
    }
    if object.pointer("/metadata/annotations").is_none_or(Value::is_null) {
        object::set_path(object, "metadata.annotations", serde_json::json!({}));
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(CHANGE_CAUSE.to_owned(), command_line(session).into());
    }
}
