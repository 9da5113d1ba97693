//! Server-side apply, and the migration of objects that were applied by the client before.

use api::Value;

use super::{ApplyRun, warn_if_deleting};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    last_applied::{LAST_APPLIED, last_applied_text},
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
        if let Err(error) = save_last_applied(run, &mut info, &manifest) {
            errln!(
                "Warning: failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply. This is \
                 non-fatal and will be retried next time you apply. Error: {error}"
            );
        } else if migrate_managed_fields(run, &info)? {
            let applied = send(run, &info, &manifest)?;
            info.object = applied;
        }
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

/// Updates the last-applied annotation of an object that has one.
fn save_last_applied(run: &ApplyRun, info: &mut ResourceInfo, manifest: &Value) -> CommandResult {
    let annotation = info.object.map("metadata.annotations").and_then(|map| map.get(LAST_APPLIED));
    if annotation.is_none() || run.options.field_manager != "kubectl" {
        return Ok(());
    }
    let text = last_applied_text(manifest);
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
fn migrate_managed_fields(run: &ApplyRun, info: &ResourceInfo) -> CommandResult<bool> {
    let fields = info.object.list("metadata.managedFields");
    let is_client_side = |entry: &&Value| {
        entry.text("manager") == "kubectl-client-side-apply"
            && entry.text("operation") == "Update"
            && entry.text("subresource").is_empty()
    };
    let Some(at) = fields.iter().position(|entry| is_client_side(&entry)) else { return Ok(false) };
    let manager = &run.options.field_manager;
    let mut migrated = fields.to_vec();
    let mut old = migrated.remove(at);
    let target = migrated.iter_mut().find(|entry| {
        entry.text("manager") == manager && entry.text("operation") == "Apply" && entry.text("subresource").is_empty()
    });
    match target {
        Some(entry) => union_fields(&mut entry["fieldsV1"], &old["fieldsV1"]),
        None => {
            old["manager"] = manager.clone().into();
            old["operation"] = "Apply".into();
            migrated.push(old);
        }
    }
    // The annotation has a manager of its own afterwards.
    for entry in &mut migrated {
        if entry.text("manager") == manager && entry.text("operation") == "Apply" {
            remove_annotation(&mut entry["fieldsV1"]);
        }
    }
    let patch = serde_json::json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": migrated},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": info.object.text("metadata.resourceVersion")}]);
    match info.patch(run.session.client()?, PatchKind::Json, patch.to_string(), &RequestOptions::default()) {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => {
            errln!(
                "Warning: server rejected managed fields migration to Server-Side Apply. This is non-fatal and will be retried \
                 next time you apply. Error: {error}"
            );
            Ok(false)
        }
    }
}

fn remove_annotation(fields: &mut Value) {
    let name = format!("f:{LAST_APPLIED}");
    let Some(annotations) = fields.pointer_mut("/f:metadata/f:annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.remove(&name);
    if annotations.keys().all(|key| key == ".") {
        object::remove_path(fields, "f:metadata.f:annotations");
        if fields.pointer("/f:metadata").and_then(Value::as_object).is_some_and(api::Map::is_empty) {
            object::remove_path(fields, "f:metadata");
        }
    }
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
