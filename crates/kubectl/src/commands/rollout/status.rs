//! `kubectl rollout status`

use api::{Value, json::go_quote};

use super::make_builder;
use crate::{
    commands::wait_condition::{WaitDeadline, list_single, watch_single},
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of},
    output::write_out,
    resource::ResourceInfo,
    session::Session,
};

/// Shows the progress of a rollout until it is done.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let revision = flags.int("revision");
    if revision < 0 {
        crate::bail!("revision must be a positive integer: {revision}");
    }
    let builder = make_builder(session)?;
    let mut found = false;
    builder.visit(session, &mut |info| {
        found = true;
        follow_rollout(session, &info, revision)
    })?;
    if !found {
        errln!("No resources found in {} namespace.", builder.namespace);
    }
    Ok(())
}

/// Shows the progress of an object's rollout until it is done.
fn follow_rollout(session: &Session, info: &ResourceInfo, revision: i64) -> CommandResult {
    let flags = &session.flags;
    let timeout = flags.duration("timeout");
    let deadline = WaitDeadline::after(if timeout == 0 { -1 } else { timeout });
    let (mut item, mut version) = list_single(session.client()?, info)?;
    loop {
        let Some(object) = item.take() else { crate::bail!("object has been deleted") };
        let (text, done) = rollout_status(&object, revision)?;
        write_out(&text);
        if done || !flags.bool("watch") {
            return Ok(());
        }
        item = watch_single(session.client()?, info, &version, deadline, &mut |kind, object| match kind {
            "DELETED" => Err(CommandError::new("object has been deleted")),
            _ => Ok(Some(object.clone())),
        })?;
        match &item {
            Some(object) => version = object.text("metadata.resourceVersion").to_owned(),
            None if deadline.left().is_none() => crate::bail!("timed out waiting for the condition"),
            None => (item, version) = list_single(session.client()?, info)?,
        }
    }
}

/// The message about an object's rollout, and whether it is done.
fn rollout_status(object: &Value, revision: i64) -> CommandResult<(String, bool)> {
    match object.text("kind") {
        "Deployment" => deployment_status(object, revision),
        "DaemonSet" => daemon_set_status(object),
        "StatefulSet" => stateful_set_status(object),
        kind => crate::bail!("no status viewer has been implemented for {kind}"),
    }
}

fn number(object: &Value, path: &str) -> i64 {
    object.integer(path).unwrap_or(0)
}

fn is_observed(object: &Value) -> bool {
    number(object, "metadata.generation") <= number(object, "status.observedGeneration")
}

fn deployment_status(object: &Value, revision: i64) -> CommandResult<(String, bool)> {
    let name = go_quote(name_of(object));
    if revision > 0 {
        let running = object
            .map("metadata.annotations")
            .and_then(|map| map.get("deployment.kubernetes.io/revision"))
            .and_then(Value::as_str);
        let running: i64 = running.and_then(|text| text.parse().ok()).unwrap_or(0);
        if running != revision {
            crate::bail!("desired revision ({revision}) is different from the running revision ({running})");
        }
    }
    if !is_observed(object) {
        return Ok(("Waiting for deployment spec update to be observed...\n".into(), false));
    }
    let progressing = object.list("status.conditions").iter().find(|condition| condition.text("type") == "Progressing");
    if progressing.is_some_and(|condition| condition.text("reason") == "ProgressDeadlineExceeded") {
        crate::bail!("deployment {name} exceeded its progress deadline");
    }
    let (updated, all, available) = (
        number(object, "status.updatedReplicas"),
        number(object, "status.replicas"),
        number(object, "status.availableReplicas"),
    );
    let waiting = format!("Waiting for deployment {name} rollout to finish:");
    if let Some(wanted) = object.integer("spec.replicas").filter(|wanted| updated < *wanted) {
        return Ok((format!("{waiting} {updated} out of {wanted} new replicas have been updated...\n"), false));
    }
    if all > updated {
        return Ok((format!("{waiting} {} old replicas are pending termination...\n", all - updated), false));
    }
    if available < updated {
        return Ok((format!("{waiting} {available} of {updated} updated replicas are available...\n"), false));
    }
    Ok((format!("deployment {name} successfully rolled out\n"), true))
}

fn daemon_set_status(object: &Value) -> CommandResult<(String, bool)> {
    let name = go_quote(name_of(object));
    if object.text("spec.updateStrategy.type") != "RollingUpdate" {
        crate::bail!("rollout status is only available for RollingUpdate strategy type");
    }
    if !is_observed(object) {
        return Ok(("Waiting for daemon set spec update to be observed...\n".into(), false));
    }
    let (updated, wanted, available) = (
        number(object, "status.updatedNumberScheduled"),
        number(object, "status.desiredNumberScheduled"),
        number(object, "status.numberAvailable"),
    );
    let waiting = format!("Waiting for daemon set {name} rollout to finish:");
    if updated < wanted {
        return Ok((format!("{waiting} {updated} out of {wanted} new pods have been updated...\n"), false));
    }
    if available < wanted {
        return Ok((format!("{waiting} {available} of {wanted} updated pods are available...\n"), false));
    }
    Ok((format!("daemon set {name} successfully rolled out\n"), true))
}

fn stateful_set_status(object: &Value) -> CommandResult<(String, bool)> {
    if object.text("spec.updateStrategy.type") != "RollingUpdate" {
        crate::bail!("rollout status is only available for RollingUpdate strategy type");
    }
    if number(object, "status.observedGeneration") == 0 || !is_observed(object) {
        return Ok(("Waiting for statefulset spec update to be observed...\n".into(), false));
    }
    let (wanted, ready, updated) = (
        object.integer("spec.replicas"),
        number(object, "status.readyReplicas"),
        number(object, "status.updatedReplicas"),
    );
    if let Some(wanted) = wanted.filter(|wanted| ready < *wanted) {
        return Ok((format!("Waiting for {} pods to be ready...\n", wanted - ready), false));
    }
    if object.at("spec.updateStrategy.rollingUpdate").is_some() {
        if let (Some(wanted), Some(partition)) = (wanted, object.integer("spec.updateStrategy.rollingUpdate.partition"))
            && updated < wanted - partition
        {
            let text = format!(
                "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...\n",
                wanted - partition
            );
            return Ok((text, false));
        }
        return Ok((format!("partitioned roll out complete: {updated} new pods have been updated...\n"), true));
    }
    let (update, current) = (object.text("status.updateRevision"), object.text("status.currentRevision"));
    if update != current {
        let text =
            format!("waiting for statefulset rolling update to complete {updated} pods at revision {update}...\n");
        return Ok((text, false));
    }
    let count = number(object, "status.currentReplicas");
    Ok((format!("statefulset rolling update complete {count} pods at revision {current}...\n"), true))
}
