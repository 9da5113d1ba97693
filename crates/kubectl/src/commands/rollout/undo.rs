//! `kubectl rollout undo`

use api::Value;
use serde_json::json;

use super::{
    history::{RolloutRevision, load_revisions},
    make_builder,
};
use crate::{
    describe::describe_template,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    outln,
    printers::{ObjectPrinter, name_line},
    resource::{DryRun, PatchKind, RequestOptions, ResourceInfo},
    session::Session,
};

/// Goes back to an earlier revision.
pub fn run(session: &Session) -> CommandResult {
    let dry_run = DryRun::from_flags(&session.flags)?;
    let printer = ObjectPrinter::from_flags(&session.flags, "")?;
    let result = make_builder(session)?.build(session)?;
    let mut errors = result.errors;
    for info in result.infos {
        if let Err(error) = undo_one(session, &info, dry_run, &printer) {
            errors.push(error);
        }
    }
    CommandError::join(errors)
}

fn undo_one(session: &Session, info: &ResourceInfo, dry_run: DryRun, printer: &ObjectPrinter) -> CommandResult {
    let to = session.flags.int("to-revision");
    if to < 0 {
        crate::bail!("unable to find specified revision {to} in history");
    }
    let revisions = load_revisions(session, info, ("rollbacker", "rollbacker"))?;
    let is_deployment = info.mapping.kind == "Deployment";
    let chosen = choose(info, &revisions, to)?;
    if dry_run == DryRun::Client {
        outln!("{} {} (dry run)", name_line(&info.object), describe_template(&chosen.template));
        return Ok(());
    }
    if is_deployment && info.object.flag("spec.paused") {
        crate::bail!(
            "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again"
        );
    }
    let operation = if is_same(info, chosen) {
        let number =
            revisions.iter().find(|(_, revision)| std::ptr::eq(*revision, chosen)).map_or(0, |(number, _)| *number);
        format!("skipped rollback (current template already matches revision {number})")
    } else {
        roll_back(session, info, chosen, dry_run)?;
        "rolled back".to_owned()
    };
    printer.print_as(&info.object, &format!("{operation}{}", dry_run.suffix()))
}

fn choose<'a>(
    info: &ResourceInfo,
    revisions: &'a std::collections::BTreeMap<i64, RolloutRevision>,
    to: i64,
) -> CommandResult<&'a RolloutRevision> {
    if to > 0 {
        return revisions
            .get(&to)
            .ok_or_else(|| CommandError::new(format!("unable to find specified revision {to} in history")));
    }
    // The one before the latest.
    revisions.values().rev().nth(1).ok_or_else(|| {
        CommandError::new(match info.mapping.kind.as_str() {
            "Deployment" => {
                format!("no rollout history found for deployment {}", api::json::go_quote(&info.name))
            }
            _ => "no last revision to roll back to".to_owned(),
        })
    })
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove("pod-template-hash");
    }
    template
}

fn is_same(info: &ResourceInfo, revision: &RolloutRevision) -> bool {
    let current = info.object.at("spec.template").cloned().unwrap_or_default();
    without_hash(&current) == without_hash(&revision.template)
}

fn roll_back(session: &Session, info: &ResourceInfo, revision: &RolloutRevision, dry_run: DryRun) -> CommandResult {
    let options = RequestOptions { dry_run, ..Default::default() };
    let client = session.client()?;
    if info.mapping.kind != "Deployment" {
        let patch = revision.object.at("data").cloned().unwrap_or_default();
        info.patch(client, PatchKind::Strategic, patch.to_string(), &options)?;
        return Ok(());
    }
    let skipped = [
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    ];
    let mut merged = json!({});
    for (key, value) in info.object.map("metadata.annotations").into_iter().flatten() {
        if skipped.contains(&key.as_str()) {
            merged[key] = value.clone();
        }
    }
    for (key, value) in revision.object.map("metadata.annotations").into_iter().flatten() {
        if !skipped.contains(&key.as_str()) {
            merged[key] = value.clone();
        }
    }
    let patch = json!([
        {"op": "replace", "path": "/spec/template", "value": without_hash(&revision.template)},
        {"op": "replace", "path": "/metadata/annotations", "value": merged}]);
    info.patch(client, PatchKind::Json, patch.to_string(), &options)
        .map_err(|error| CommandError::new(format!("failed restoring revision: {error}")))?;
    Ok(())
}
