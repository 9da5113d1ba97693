//! `kubectl scale`

use api::{Value, json::go_quote};
use serde_json::json;

use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    printers::ObjectPrinter,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// Sets the number of replicas.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, &format!("scaled{}", dry_run.suffix()))?;
    let replicas = flags.int("replicas");
    if replicas < 0 {
        crate::bail!("The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0");
    }
    let current = flags.int("current-replicas");
    if current < -1 {
        crate::bail!("The --current-replicas must specify an integer of -1 or greater");
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    builder.flatten = true;
    builder.continue_on_error = true;
    let result = builder.build(session)?;
    let errors = result.errors;
    let version = flags.string("resource-version");
    if !version.is_empty() && result.infos.len() > 1 {
        crate::bail!("cannot use --resource-version with multiple resources");
    }
    if result.infos.is_empty() && errors.is_empty() {
        crate::bail!("no objects passed to scale");
    }
    for info in result.infos {
        // The first failure ends it; objects that were not found are reported at the end.
        scale_one(session, info, (replicas, current), &version, dry_run, &printer)?;
    }
    CommandError::join(errors)
}

fn scale_one(
    session: &Session,
    mut info: ResourceInfo,
    (replicas, current): (i64, i64),
    version: &str,
    dry_run: DryRun,
    printer: &ObjectPrinter,
) -> CommandResult {
    if dry_run == DryRun::Client {
        crate::object::set_path(&mut info.object, "spec.replicas", replicas.into());
        return printer.print(&info.object);
    }
    let client = session.client()?;
    info.subresource = "scale".to_owned();
    let options = RequestOptions { dry_run, ..Default::default() };
    if current == -1 && version.is_empty() {
        let patch = json!({"spec": {"replicas": replicas}});
        info.patch(client, PatchKind::Merge, patch.to_string(), &options)?;
    } else {
        let scale = info.fetch(client)?;
        check_preconditions(&scale, current, version)?;
        let mut changed = scale;
        crate::object::set_path(&mut changed, "spec.replicas", replicas.into());
        info.replace(client, &changed, &options)?;
    }
    info.subresource.clear();
    crate::object::set_path(&mut info.object, "spec.replicas", replicas.into());
    if session.flags.bool("record") {
        let mut recorded = info.object.clone();
        super::record::record_command(session, &mut recorded);
        let change = crate::merge_patch::diff_merge(&info.object, &recorded);
        info.patch(client, PatchKind::Merge, change.to_string(), &RequestOptions::default())?;
    }
    wait_for_scale(session, &mut info, replicas, dry_run)?;
    printer.print(&info.object)
}

fn check_preconditions(scale: &Value, current: i64, version: &str) -> CommandResult {
    let found = scale.integer("spec.replicas").unwrap_or(0);
    if current != -1 && found != current {
        crate::bail!("Expected replicas to be {current}, was {found}");
    }
    let actual = scale.text("metadata.resourceVersion");
    if !version.is_empty() && actual != version {
        crate::bail!("Expected resource version to be {version}, was {actual}");
    }
    Ok(())
}

/// Waits until the replicas are there, if `--timeout` asks for it.
fn wait_for_scale(session: &Session, info: &mut ResourceInfo, replicas: i64, dry_run: DryRun) -> CommandResult {
    let timeout = session.flags.duration("timeout");
    if timeout == 0 || dry_run != DryRun::None {
        return Ok(());
    }
    let deadline = super::wait_condition::WaitDeadline::after(timeout);
    info.subresource = "scale".to_owned();
    loop {
        let scale = info.fetch(session.client()?)?;
        let done = scale.integer("status.replicas").unwrap_or(0) == replicas
            && scale.integer("spec.replicas").unwrap_or(0) == replicas;
        if done {
            break;
        }
        if deadline.left().is_none() {
            return Err(CommandError::new(format!("timed out waiting for {} to be synced", go_quote(&info.name))));
        }
        std::thread::sleep(std::time::Duration::from_secs(1).min(deadline.left().unwrap_or_default()));
    }
    info.subresource.clear();
    Ok(())
}
