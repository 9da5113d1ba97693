//! `kubectl replace`

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
    let mut count = 0;
    builder.visit(session, &mut |mut info| {
        count += 1;
        if flags.bool("save-config")
            || info.object.map("metadata.annotations").is_some_and(|map| map.contains_key(crate::object::LAST_APPLIED))
        {
            crate::last_applied::set_last_applied(&mut info.object);
        }
        super::record::record_command(session, &mut info.object);
        if dry_run == DryRun::Client {
            return printer.print(&info.object);
        }
        let client = session.client()?;
        info.subresource = flags.string("subresource");
        let replaced = if force {
            let options = DeleteOptions {
                grace_period: grace,
                propagation: cascade.clone(),
                dry_run,
                names: false,
                quiet: false,
            };
            match delete_object(client, &info, &options) {
                Ok(uid) => {
                    let timeout = flags.duration("timeout");
                    wait_for_deletion(
                        client,
                        &info,
                        &uid,
                        WaitDeadline::after(if timeout == 0 { 300_000_000_000 } else { timeout }),
                    )?;
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            crate::object::remove_path(&mut info.object, "metadata.resourceVersion");
            info.create(
                client,
                &info.object,
                &RequestOptions {
                    field_validation: options_validation(validation),
                    ..RequestOptions { field_manager: flags.string("field-manager"), ..Default::default() }
                },
            )
        } else {
            let mut body = info.object.clone();
            if body.text("metadata.resourceVersion").is_empty() {
                let current = info.fetch(client).map_err(|error| error.with_source("replacing", &info.source))?;
                crate::object::set_path(
                    &mut body,
                    "metadata.resourceVersion",
                    current.text("metadata.resourceVersion").into(),
                );
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

fn options_validation(validation: Validation) -> String {
    validation.parameter().to_owned()
}
