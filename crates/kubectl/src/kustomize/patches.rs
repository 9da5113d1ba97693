//! Patches: strategic merge and JSON 6902, by target or by the patch's own identity.

use api::{Value, json::go_quote};
use regex_lite::Regex;

use super::{kustomization::Kustomization, resources::BuildResource, strategic_merge::merge_patch};
use crate::{
    errors::{CommandError, CommandResult},
    manifest::decode_yaml12_documents,
    merge_patch::type_of_object,
    object::{ObjectFields, group_version_kind, name_of, namespace_of},
};

/// Applies `patchesStrategicMerge`: files or texts.
pub fn apply_strategic_files(kustomization: &Kustomization, resources: &mut Vec<BuildResource>) -> CommandResult {
    for entry in kustomization.texts("patchesStrategicMerge") {
        let bytes = if entry.contains('\n') { entry.clone().into_bytes() } else { kustomization.read(&entry)? };
        for patch in decode_yaml12_documents(&bytes, &entry)? {
            apply_by_identity(resources, &patch)?;
        }
    }
    Ok(())
}

/// Applies the entries of `patches` or `patchesJson6902`.
pub fn apply_patches(kustomization: &Kustomization, field: &str, resources: &mut Vec<BuildResource>) -> CommandResult {
    for entry in kustomization.list(field) {
        let (inline, path) = (entry.text("patch").trim(), entry.text("path"));
        let config = api::yaml::write_document(entry);
        let trouble = |error: String| {
            CommandError::new(format!(
                "trouble configuring builtin PatchTransformer with config: `\n{config}`: {error}"
            ))
        };
        let (bytes, source) = match (inline, path) {
            ("", "") => return Err(trouble(format!("must specify one of patch and path in\n{config}"))),
            (_, "") => (inline.as_bytes().to_vec(), format!("[patch: {}]", go_quote(inline))),
            ("", path) => {
                let bytes = kustomization
                    .read(path)
                    .map_err(|error| trouble(format!("failed to get the patch file from path({path}): {error}")))?;
                (bytes, format!("[path: {}]", go_quote(path)))
            }
            _ => return Err(trouble(format!("patch and path can't be set at the same time\n{config}"))),
        };
        let unreadable = || trouble(format!("unable to parse SM or JSON patch from {source}"));
        let documents = decode_yaml12_documents(&bytes, &source).map_err(|_| unreadable())?;
        if documents.iter().any(|document| !document.is_object() && !document.is_array()) {
            return Err(unreadable());
        }
        let target = entry.get("target").filter(|target| target.is_object());
        match (documents.as_slice(), target) {
            ([Value::Array(_)], None) => crate::bail!("must specify a target for JSON patch {source}"),
            ([patch @ Value::Array(_)], Some(target)) => apply_json(resources, target, patch)?,
            (patches, None) => patches.iter().try_for_each(|patch| apply_by_identity(resources, patch))?,
            ([patch], Some(target)) => apply_to_selected(resources, target, patch, entry)?,
            _ => crate::bail!(
                "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {source}"
            ),
        }
    }
    Ok(())
}

/// Whether a resource is chosen by a selector, whose fields are patterns.
pub fn is_selected(resource: &BuildResource, selector: &Value) -> CommandResult<bool> {
    let pattern = |field: &str| -> CommandResult<Option<Regex>> {
        let text = selector.text(field);
        if text.is_empty() {
            return Ok(None);
        }
        let anchored = format!("^(?:{text})$");
        Regex::new(&anchored).map(Some).map_err(|error| CommandError::new(format!("invalid pattern {text}: {error}")))
    };
    let (group, version, _) = group_version_kind(&resource.object);
    let fits = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
    let (kind, name, namespace) = (pattern("kind")?, pattern("name")?, pattern("namespace")?);
    if !fits(&pattern("group")?, &group) || !fits(&pattern("version")?, &version) {
        return Ok(false);
    }
    let named = resource.identities().any(|(own_kind, own_name, own_namespace)| {
        fits(&kind, own_kind) && fits(&name, own_name) && fits(&namespace, own_namespace)
    });
    for (field, entries) in [("labelSelector", "metadata.labels"), ("annotationSelector", "metadata.annotations")] {
        let text = selector.text(field);
        let parsed = api::selector::LabelSelector::parse(text)
            .map_err(|error| CommandError::new(format!("invalid selector {}: {error}", go_quote(text))))?;
        if !parsed.matches(resource.object.at(entries).unwrap_or(&Value::Null)) {
            return Ok(false);
        }
    }
    Ok(named)
}

fn apply_to_selected(
    resources: &mut Vec<BuildResource>,
    target: &Value,
    patch: &Value,
    entry: &Value,
) -> CommandResult {
    let mut kept = Vec::new();
    for mut resource in std::mem::take(resources) {
        let keep = if is_selected(&resource, target)? { merge_into(&mut resource, patch, entry) } else { true };
        if keep {
            kept.push(resource);
        }
    }
    *resources = kept;
    Ok(())
}

/// Merges a patch; name and kind stay unless the options allow a change.
fn merge_into(resource: &mut BuildResource, patch: &Value, entry: &Value) -> bool {
    resource.remember();
    let before = resource.object.clone();
    let keep = merge_patch(type_of_object(&before), &mut resource.object, patch);
    let options = &entry["options"];
    if !options.flag("allowNameChange") {
        resource.object["metadata"]["name"] = before["metadata"]["name"].clone();
    }
    if !options.flag("allowKindChange") {
        resource.object["kind"] = before["kind"].clone();
        resource.object["apiVersion"] = before["apiVersion"].clone();
    }
    match before["metadata"].get("namespace") {
        Some(namespace) => resource.object["metadata"]["namespace"] = namespace.clone(),
        None => crate::object::remove_path(&mut resource.object, "metadata.namespace"),
    }
    keep
}

fn apply_by_identity(resources: &mut Vec<BuildResource>, patch: &Value) -> CommandResult {
    let (group, _, kind) = group_version_kind(patch);
    let (name, namespace) = (name_of(patch).to_owned(), namespace_of(patch).to_owned());
    let fits = |resource: &BuildResource| {
        group_version_kind(&resource.object).0 == group
            && resource.identities().any(|(own_kind, own_name, own_namespace)| {
                let plain = |text: &str| if text == "default" { String::new() } else { text.to_owned() };
                own_kind == kind && own_name == name && plain(own_namespace) == plain(&namespace)
            })
    };
    let Some(at) = resources.iter().position(fits) else {
        let id = BuildResource::identity_text(patch);
        crate::bail!(
            "no resource matches strategic merge patch {}: no matches for Id {id}; failed to find unique target for patch {id}",
            go_quote(&id)
        );
    };
    if !merge_into(&mut resources[at], patch, &Value::Null) {
        resources.remove(at);
    }
    Ok(())
}

fn apply_json(resources: &mut [BuildResource], target: &Value, patch: &Value) -> CommandResult {
    for resource in resources {
        if !is_selected(resource, target)? {
            continue;
        }
        resource.remember();
        let ty = type_of_object(&resource.object)
            .or_else(|| api::schema::schema().type_named("core/v1.ConfigMap"))
            .ok_or_else(|| CommandError::new("no type to patch with"))?;
        let patched = api::patch::PatchType::Json.apply_patch(ty, &resource.object, patch);
        resource.object = patched.map_err(|error| CommandError::new(error.to_string()))?;
    }
    Ok(())
}
