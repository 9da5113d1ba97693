//! Server-side apply, and the migration of objects that were applied by the client before.

use api::Value;

use super::{ApplyRun, warn_if_deleting};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    last_applied::LAST_APPLIED,
    object::{self, ObjectFields},
    resource::{DryRun, PatchKind, RequestOptions, ResourceInfo},
};

/// Applies an object.
pub fn apply(run: &mut ApplyRun, mut info: ResourceInfo, conflict_help: &str) -> CommandResult<ResourceInfo> {
    info.subresource = run.session.flags.string("subresource");
    let manifest = info.object.clone();
    let applied = send(run, &info, &manifest);
    info.object = applied.map_err(|error| match error.is_conflict() {
        true => CommandError::new(format!("{error}\n{conflict_help}")),
        false => error,
    })?;
    if run.dry_run == DryRun::None {
        migrate_from_client_side(run, &mut info, &manifest);
    }
    warn_if_deleting(&info);
    run.mark_visited(&info);
    run.print_operation(&info, "serverside-applied")?;
    Ok(info)
}

fn send(run: &ApplyRun, info: &ResourceInfo, manifest: &Value) -> CommandResult<Value> {
    let mut options = run.options.clone();
    options.force = run.session.flags.bool("force-conflicts");
    let request = crate::rest::RestRequest::new(http::Method::PATCH, info.path());
    let mut request = options.apply_to(request).with_body(PatchKind::Apply.content_type(), manifest.to_string());
    if !options.force {
        request = request.with_query("force", "false");
    }
    run.session.client()?.send_json(request)
}

/// Moves what client-side apply owned to the manager of server-side apply. The object is applied already, so a failure is a
/// warning.
fn migrate_from_client_side(run: &ApplyRun, info: &mut ResourceInfo, manifest: &Value) {
    const LATER: &str = "This is non-fatal and will be retried next time you apply. Error:";
    if let Err(error) = save_last_applied(run, info) {
        errln!(
            "Warning: failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply. {LATER} {error}"
        );
        return;
    }
    match migrate_managed_fields(run, info) {
        Err(error) => {
            errln!("Warning: server rejected managed fields migration to Server-Side Apply. {LATER} {error}");
        }
        // Fields that the manifest no longer has are removed only now.
        Ok(true) => match send(run, info, manifest) {
            Ok(applied) => info.object = applied,
            Err(error) => {
                errln!(
                    "Warning: failed to re-apply configuration after performing Server-Side Apply migration. {LATER} {error}"
                );
            }
        },
        Ok(false) => {}
    }
}

/// The managers of an operation that own the last-applied annotation.
fn annotation_owners(object: &Value, operation: &str) -> Vec<String> {
    let name = format!("f:{LAST_APPLIED}");
    let owns = |entry: &&Value| {
        let annotations = entry.pointer("/fieldsV1/f:metadata/f:annotations");
        entry.text("operation") == operation
            && entry.text("subresource").is_empty()
            && annotations.is_some_and(|annotations| annotations.get(&name).is_some())
    };
    let mut names: Vec<String> = object
        .list("metadata.managedFields")
        .iter()
        .filter(owns)
        .map(|entry| entry.text("manager").to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Gives the last-applied annotation of an object that has one a manager of its own, so that it stays.
fn save_last_applied(run: &ApplyRun, info: &mut ResourceInfo) -> CommandResult {
    if run.options.field_manager != "kubectl" || !annotation_owners(&info.object, "Apply").is_empty() {
        return Ok(());
    }
    let annotation = info.object.map("metadata.annotations").and_then(|map| map.get(LAST_APPLIED));
    let Some(text) = annotation.cloned() else { return Ok(()) };
    let (api_version, kind) = (info.object.text("apiVersion"), info.object.text("kind"));
    let mut body = serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": info.name, "annotations": {LAST_APPLIED: text}}});
    if !info.namespace.is_empty() {
        object::set_path(&mut body, "metadata.namespace", info.namespace.clone().into());
    }
    let options = RequestOptions {
        field_manager: "kubectl-last-applied".into(),
        field_validation: run.options.field_validation.clone(),
        force: true,
        ..Default::default()
    };
    let request = options.apply_to(crate::rest::RestRequest::new(http::Method::PATCH, info.path()));
    let request = request.with_body(PatchKind::Apply.content_type(), body.to_string());
    info.object = run.session.client()?.send_json(request)?;
    Ok(())
}

/// Moves the fields of client-side apply to the manager of server-side apply; returns whether anything moved.
fn migrate_managed_fields(run: &ApplyRun, info: &mut ResourceInfo) -> CommandResult<bool> {
    const ATTEMPTS: usize = 5;
    let client = run.session.client()?;
    let owners = annotation_owners(&info.object, "Update");
    let mut outcome = Ok(false);
    for _ in 0..ATTEMPTS {
        let fields = info.object.list("metadata.managedFields");
        let mut migrated = fields.to_vec();
        owners.iter().for_each(|owner| move_fields(&mut migrated, owner, &run.options.field_manager));
        if migrated == fields {
            return Ok(false);
        }
        let patch = serde_json::json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": migrated},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": info.object.text("metadata.resourceVersion")}]);
        match info.patch(client, PatchKind::Json, patch.to_string(), &RequestOptions::default()) {
            Ok(object) => {
                info.refresh(object);
                return Ok(true);
            }
            Err(error) if error.is_conflict() => outcome = Err(error),
            Err(error) => return Err(error),
        }
        info.load(client)?;
    }
    outcome
}

/// Moves the fields that `owner` has by updates to those that `manager` has applied.
fn move_fields(entries: &mut Vec<Value>, owner: &str, manager: &str) {
    let is_entry = |entry: &Value, manager: &str, operation: &str| {
        entry.text("manager") == manager && entry.text("operation") == operation && entry.text("subresource").is_empty()
    };
    let Some(at) = entries.iter().position(|entry| is_entry(entry, owner, "Update")) else { return };
    let target = match entries.iter().position(|entry| is_entry(entry, manager, "Apply")) {
        Some(target) => target,
        None => {
            entries[at]["manager"] = manager.into();
            entries[at]["operation"] = "Apply".into();
            at
        }
    };
    let version = entries[target].text("apiVersion").to_owned();
    let same_version = |entry: &&Value| is_entry(entry, owner, "Update") && entry.text("apiVersion") == version;
    if let Some(owned) = entries.iter().find(same_version).and_then(|entry| entry.get("fieldsV1")).cloned() {
        union_fields(&mut entries[target]["fieldsV1"], &owned);
    }
    entries.retain(|entry| !is_entry(entry, owner, "Update"));
}

fn union_fields(into: &mut Value, other: &Value) {
    let (Value::Object(into), Value::Object(other)) = (into, other) else { return };
    for (key, value) in other {
        match into.get_mut(key) {
            Some(known) => union_fields(known, value),
            None => drop(into.insert(key.clone(), value.clone())),
        }
    }
}
