//! `kubectl set selector`

use api::Value;

use super::SetRun;
use crate::{
    commands::create::parse_label_selector,
    errors::{CommandError, CommandResult},
    object::{self, ObjectFields},
    session::Session,
};

/// Sets the selector of services.
pub fn run(session: &Session) -> CommandResult {
    let mut run = SetRun::new(session, "selector updated", "")?;
    run.sends_unchanged = true;
    let Some((text, resources)) = session.arguments().split_last() else { crate::bail!("one selector is required") };
    let selector = parse_label_selector(text)?;
    let infos = run.load(resources)?;
    let version = session.flags.string("resource-version");
    run.change(infos, &mut |value, errors| {
        if value.text("kind") != "Service" {
            errors.push(CommandError::new("setting a selector is only supported for Services"));
            return Ok(false);
        }
        if let Some(expressions) = selector.get("matchExpressions") {
            let shown: Vec<String> = expressions
                .as_array()
                .into_iter()
                .flatten()
                .map(|entry| {
                    let values: Vec<&str> = entry.list("values").iter().filter_map(Value::as_str).collect();
                    format!("{{{} {} [{}]}}", entry.text("key"), entry.text("operator"), values.join(" "))
                })
                .collect();
            errors.push(CommandError::new(format!(
                "match expression [{}] not supported on this object",
                shown.join(" ")
            )));
            return Ok(false);
        }
        if !version.is_empty() {
            object::set_path(value, "metadata.resourceVersion", version.clone().into());
        }
        let labels = selector.get("matchLabels").cloned().unwrap_or_else(|| serde_json::json!({}));
        object::set_path(value, "spec.selector", labels);
        Ok(true)
    })
}
