//! `kubectl replace`

use api::Value;

use super::{
    delete::{DeleteOptions, delete_object, propagation_of},
    raw,
    wait_condition::{WaitDeadline, wait_for_deletion},
};
use crate::{
    errors::CommandResult,
    object::ObjectFields,
    printers::ObjectPrinter,
    resource::{DryRun, RequestOptions, ResourceBuilder, Validation},
    session::Session,
};

/// Replaces objects by those of files.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let validation = Validation::from_flags(flags)?;
    let dry_run = DryRun::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, &format!("replaced{}", dry_run.suffix()))?;
    let cascade = propagation_of(session)?;
    let mut builder = ResourceBuilder::from_session(session)?;
    let force = flags.bool("force");
    let grace = flags.int("grace-period");
    let path = flags.string("raw");
    if grace >= 0 && !force {
        crate::bail!("--grace-period must have --force specified");
    }
    if flags.duration("timeout") != 0 && !force {
        crate::bail!("--timeout must have --force specified");
    }
    if force && dry_run != DryRun::None {
        crate::bail!("--dry-run can not be used when --force is set");
    }
    if builder.filenames.is_empty() && builder.kustomize.is_empty() {
        crate::bail!("must specify one of -f and -k");
    }
    if !path.is_empty() {
        if builder.filenames.len() != 1 {
            crate::bail!("--raw can only use a single local file or stdin");
        }
        if builder.filenames.iter().any(|name| name.starts_with("http://") || name.starts_with("https://")) {
            crate::bail!("--raw cannot read from a url");
        }
        for flag in ["recursive", "output"] {
            let value = flags.string(flag);
            if !["", "false"].contains(&value.as_str()) {
                crate::bail!("--raw and --{flag} are mutually exclusive");
            }
        }
        raw::check_path(&path)?;
        return raw::send(session, http::Method::PUT, &path, builder.filenames.first().map(String::as_str));
    }
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.validation = validation;
    builder.select_all = false;
    let options = RequestOptions {
        dry_run,
        field_manager: flags.string("field-manager"),
        field_validation: validation.parameter().to_owned(),
        force: false,
    };
    if force {
        return replace_by_force(session, &builder, &cascade, &options, &printer);
    }
    let mut count = 0;
    builder.visit(session, &mut |mut info| {
        count += 1;
        if flags.bool("save-config") || is_applied(&info.object) {
            crate::last_applied::set_last_applied(&mut info.object);
        }
        super::record::record_command(session, &mut info.object);
        if dry_run == DryRun::Client {
            return printer.print(&info.object);
        }
        let client = session.client()?;
        info.subresource = flags.string("subresource");
        let replaced = {
            let mut body = info.object.clone();
            if body.text("metadata.resourceVersion").is_empty() {
                // What does not exist is made by the request, if its resource allows that.
                if let Ok(current) = info.fetch(client) {
                    let version = current.text("metadata.resourceVersion").into();
                    crate::object::set_path(&mut body, "metadata.resourceVersion", version);
                }
            }
            info.replace(client, &body, &options).map_err(|error| error.with_source("replacing", &info.source))
        }?;
        printer.print(&replaced)
    })?;
    if count == 0 {
        crate::bail!("no objects passed to replace");
    }
    Ok(())
}

/// Deletes all objects, waits until they are gone, and creates them anew.
fn replace_by_force(
    session: &Session,
    builder: &ResourceBuilder,
    cascade: &str,
    options: &RequestOptions,
    printer: &ObjectPrinter,
) -> CommandResult {
    let (flags, client) = (&session.flags, session.client()?);
    // A deletion without grace is one of a second, so that it is known when the object is gone.
    let grace_period = if flags.int("grace-period") == 0 { 1 } else { flags.int("grace-period") };
    let deletion = DeleteOptions { grace_period, propagation: cascade.to_owned(), ..Default::default() };
    let infos = builder.infos(session)?;
    if infos.is_empty() {
        crate::bail!("no objects passed to replace");
    }
    let mut deleted = Vec::new();
    for info in &infos {
        match delete_object(client, info, &deletion) {
            Ok(uid) => deleted.push((info, uid)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let timeout = flags.duration("timeout");
    let deadline = WaitDeadline::after(if timeout == 0 { 300_000_000_000 } else { timeout });
    for (info, uid) in deleted {
        wait_for_deletion(client, info, &uid, deadline)?;
    }
    for mut info in infos {
        if flags.bool("save-config") || is_applied(&info.object) {
            crate::last_applied::set_last_applied(&mut info.object);
        }
        super::record::record_command(session, &mut info.object);
        crate::object::remove_path(&mut info.object, "metadata.resourceVersion");
        printer.print(&info.create_from_manifest(client, &info.object, options)?)?;
    }
    Ok(())
}

/// Whether an object has the annotation that apply keeps.
fn is_applied(object: &Value) -> bool {
    object.map("metadata.annotations").is_some_and(|map| map.contains_key(crate::object::LAST_APPLIED))
}
