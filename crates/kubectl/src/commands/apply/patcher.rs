//! Client-side apply: the three-way patch of an object.

use api::Value;

use super::{ApplyRun, describe_info};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    last_applied::{LAST_APPLIED, set_last_applied},
    merge_conflicts::patches_conflict,
    merge_patch::{diff_unordered, three_way_merge, three_way_strategic, type_of_object},
    object::ObjectFields,
    resource::{DryRun, PatchKind, ResourceInfo},
};

/// A computed patch.
pub struct ApplyPatch {
    /// The type of the patch.
    pub kind: PatchKind,
    /// The patch.
    pub patch: Value,
}

const MAX_RETRIES: usize = 5;

/// The form of the manifest that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchSource {
    /// With the annotation that apply keeps.
    Annotated,
    /// Without it.
    Manifest,
}

/// Computes the patch from the current object to the manifest.
pub fn compute_patch(current: &Value, manifest: &Value, source: PatchSource) -> CommandResult<ApplyPatch> {
    let mut modified = manifest.clone();
    match source {
        PatchSource::Annotated => set_last_applied(&mut modified),
        PatchSource::Manifest => {
            if let Some(annotations) = modified.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.remove(LAST_APPLIED);
            }
        }
    }
    let original = original_of(current)?;
    match type_of_object(manifest) {
        Some(ty) => {
            let patch = three_way_strategic(ty, &original, &modified, current);
            Ok(ApplyPatch { kind: PatchKind::Strategic, patch })
        }
        None => Ok(ApplyPatch { kind: PatchKind::Merge, patch: three_way_merge(&original, &modified, current) }),
    }
}

/// Patches the object; conflicts are tried again.
pub fn patch_object(run: &ApplyRun, info: &mut ResourceInfo, manifest: &Value) -> CommandResult<Value> {
    let client = run.session.client()?;
    let mut tries = 0;
    loop {
        let computed = compute_patch(&info.object, manifest, PatchSource::Annotated)?;
        if !run.session.flags.bool("overwrite") {
            check_overwrites(info, manifest, &computed)?;
        }
        if computed.patch == serde_json::json!({}) {
            return Ok(computed.patch);
        }
        if run.dry_run == DryRun::Client {
            let patched = apply_locally(&info.object, &computed)?;
            info.refresh(patched);
            return Ok(computed.patch);
        }
        // Server-side effects of a conflict are seen by reading the object once more.
        match info.patch(client, computed.kind, computed.patch.to_string(), &run.options) {
            Ok(patched) => {
                info.refresh(patched);
                return Ok(computed.patch);
            }
            Err(error) if error.is_conflict() && tries < MAX_RETRIES => {
                tries += 1;
                info.load(client)?;
            }
            Err(error) if run.session.flags.bool("force") && ["Conflict", "Invalid"].contains(&error.reason()) => {
                recreate(run, info, manifest)?;
                return Ok(computed.patch);
            }
            Err(error) => {
                let error = error.with_source("patching", &info.source);
                let verb = format!("applying patch:\n{}\nto:\n{}\nfor:", computed.patch, describe_info(info));
                return Err(error.with_source(&verb, &info.source));
            }
        }
    }
}

/// Refuses a patch of fields that others have changed since the last apply, for `--overwrite=false`.
fn check_overwrites(info: &ResourceInfo, manifest: &Value, computed: &ApplyPatch) -> CommandResult {
    let (Some(ty), PatchKind::Strategic) = (type_of_object(manifest), computed.kind) else { return Ok(()) };
    let current = &info.object;
    let original = original_of(current)?;
    let changed = diff_unordered(ty, &original, current);
    if !patches_conflict(ty, &computed.patch, &changed) {
        return Ok(());
    }
    let conflict = format!(
        "patch:\n{}\nconflicts with changes made from original to current:\n{}\n",
        api::yaml::write_document(&computed.patch),
        api::yaml::write_document(&changed)
    );
    // The sources of a schema are tried one after the other; all know the same types.
    for source in ["openapi v3", "openapi"] {
        errln!("warning: error calculating patch from {source} spec: {conflict}");
    }
    let mut modified = manifest.clone();
    set_last_applied(&mut modified);
    let original = if original.is_null() { String::new() } else { original.to_string() + "\n" };
    let error = CommandError::new(format!(
        "creating patch with:\noriginal:\n{original}\nmodified:\n{modified}\n\ncurrent:\n{current}\n\nfor: {conflict}"
    ));
    let verb = format!("applying patch:\n\nto:\n{}\nfor:", describe_info(info));
    Err(error.with_source("patching", &info.source).with_source(&verb, &info.source))
}

/// The manifest of the last apply; null without one.
fn original_of(current: &Value) -> CommandResult<Value> {
    let annotation = current.map("metadata.annotations").and_then(|map| map.get(LAST_APPLIED)).and_then(Value::as_str);
    annotation.map_or(Ok(Value::Null), |text| {
        serde_json::from_str(text)
            .map_err(|error| CommandError::new(format!("retrieving original configuration: {error}")))
    })
}

/// Applies a patch without the server.
pub fn apply_locally(object: &Value, computed: &ApplyPatch) -> CommandResult<Value> {
    let kind = match computed.kind {
        PatchKind::Strategic => api::patch::PatchType::Strategic,
        PatchKind::Json => api::patch::PatchType::Json,
        _ => api::patch::PatchType::Merge,
    };
    let ty = type_of_object(object)
        .or_else(|| api::schema::schema().type_named("core/v1.ConfigMap"))
        .ok_or_else(|| CommandError::new("no type to patch with"))?;
    kind.apply_patch(ty, object, &computed.patch)
        .map_err(|error| CommandError::new(format!("applying patch locally: {error}")))
}

/// Deletes the object and creates it anew, for `--force`.
fn recreate(run: &ApplyRun, info: &mut ResourceInfo, manifest: &Value) -> CommandResult {
    use crate::commands::wait_condition::{WaitDeadline, wait_for_deletion};
    let client = run.session.client()?;
    let mut options =
        serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let grace = run.session.flags.int("grace-period");
    if grace >= 0 {
        options["gracePeriodSeconds"] = grace.into();
    }
    info.delete(client, &options)?;
    let timeout = run.session.flags.duration("timeout");
    wait_for_deletion(client, info, "", WaitDeadline::after(if timeout == 0 { -1 } else { timeout }))?;
    let mut modified = manifest.clone();
    set_last_applied(&mut modified);
    let created = info.create_from_manifest(client, &modified, &run.options);
    match created {
        Ok(created) => info.refresh(created),
        Err(error) => {
            // The old object comes back, and the error is reported.
            return Err(match info.create_from_manifest(client, &info.object, &run.options) {
                Ok(_) => error,
                Err(second) => CommandError::new(format!(
                    "An error occurred force-replacing the existing object with the newly provided \
                     one:\n\n{error}.\n\nAdditionally, an error occurred attempting to restore the original \
                     object:\n\n{second}"
                )),
            });
        }
    }
    Ok(())
}
