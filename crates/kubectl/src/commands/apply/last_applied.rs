//! `kubectl apply view-last-applied`, `set-last-applied` and `edit-last-applied`

use api::Value;

use crate::{
    errors::{CommandError, CommandResult},
    last_applied::{LAST_APPLIED, last_applied_text},
    object::ObjectFields,
    output::write_out,
    printers::{ObjectPrinter, indent_json},
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder},
    session::Session,
};

fn annotation_of(object: &Value) -> Option<&str> {
    object.map("metadata.annotations")?.get(LAST_APPLIED)?.as_str()
}

/// `apply view-last-applied`
pub fn run_view(session: &Session) -> CommandResult {
    let output = session.flags.string("output");
    if !["", "yaml", "json"].contains(&output.as_str()) {
        let message = format!("Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json");
        return Err(crate::usage::usage_error(session, &message));
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    builder.latest = true;
    builder.flatten = true;
    let mut texts = Vec::new();
    builder.visit(session, &mut |info| {
        if let Some(text) = annotation_of(&info.object).filter(|text| !text.is_empty()) {
            texts.push(text.to_owned());
        }
        Ok(())
    })?;
    for text in texts {
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            CommandError::new(format!("the last-applied-configuration annotation is invalid: {error}"))
        })?;
        match output.as_str() {
            "json" => write_out(&format!("{}\n", indent_json(text.trim_end(), "  "))),
            _ => write_out(&api::yaml::write_document(&value)),
        }
    }
    Ok(())
}

/// `apply set-last-applied`
pub fn run_set(session: &Session) -> CommandResult {
    let dry_run = DryRun::from_flags(&session.flags)?;
    let printer = ObjectPrinter::from_flags(&session.flags, &format!("configured{}", dry_run.suffix()))?;
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    let mut work = Vec::new();
    builder.visit(session, &mut |info| {
        let patch = last_applied_text(&info.object);
        let current = match info.fetch(session.client()?) {
            Ok(current) => current,
            Err(error) if error.is_not_found() => return Err(error),
            Err(error) => {
                let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", super::describe_info(&info));
                return Err(error.with_source(&verb, &info.source));
            }
        };
        let existing = annotation_of(&current).map(str::to_owned);
        if existing.is_none() && !session.flags.bool("create-annotation") {
            crate::bail!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command with \
                 --create-annotation",
                info.name
            );
        }
        if existing.as_deref() != Some(&patch) {
            work.push((info, patch));
        } else {
            let mut info = info;
            info.object = current;
            work.push((info, String::new()));
        }
        Ok(())
    })?;
    for (mut info, text) in work {
        if text.is_empty() {
            write_out(&format!("set-last-applied {}: no changes required.\n", info.name));
            continue;
        }
        {
            let patch = serde_json::json!({"metadata": {"annotations": {LAST_APPLIED: text}}});
            if dry_run != DryRun::Client {
                let options = RequestOptions { dry_run, ..Default::default() };
                info.object = info.patch(session.client()?, PatchKind::Merge, patch.to_string(), &options)?;
            }
        }
        printer.print(&info.object)?;
    }
    Ok(())
}

/// `apply edit-last-applied`
pub fn run_edit(session: &Session) -> CommandResult {
    crate::commands::edit::run_edit_last_applied(session)
}
