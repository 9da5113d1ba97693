//! Persistent volumes, as far as the tables cannot say what is right.

use super::{diff, prelude::*, selector, volume_claim};
use crate::schema::schema;

pub(super) const FUNCTIONS: Functions = functions! { capacity volume_affinity no_recycled_root volume_change };

fn capacity(at: &At, e: &mut Errors) {
    at.require(e);
    if !at.get("storage").exists() || at.len() > 1 {
        at.unsupported_as(e, at.value.clone(), &["storage"]);
    }
    for (_, amount) in at.entries() {
        volume_claim::basic_amount(&amount, e);
        if amount.sign() <= 0 {
            amount.invalid_text(e, "must be greater than zero");
        }
    }
}

/// Where a volume can be used; a selector that had faults may keep them.
fn volume_affinity(at: &At, e: &mut Errors) {
    let required = at.get("required");
    if !required.exists() {
        return required.required(e, "must specify required node constraints");
    }
    selector::nodes(&required, selector::is_faulty_for_nodes(required.old), e);
}

fn no_recycled_root(spec: &At, e: &mut Errors) {
    let root = spec.get("hostPath").text_of("path");
    if root.starts_with('/') && root.split('/').all(|part| part.is_empty() || part == ".") {
        spec.get("persistentVolumeReclaimPolicy").forbidden(e, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// The source of a volume stays, and nearly all that says where it is.
fn volume_change(new: &At, e: &mut Errors) {
    let spec = new.get("spec");
    let before = spec.before();
    let mut given = only_sources(spec.value);
    let was = only_sources(before.value);
    if was["csi"].get("controllerExpandSecretRef").is_none()
        && let Some(csi) = given.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if !same(&given, &was) {
        let shown = diff::of("core/v1.PersistentVolumeSource", &was, &given);
        let message = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        spec.get("persistentvolumesource").forbidden(e, message);
    }
    if spec.get("volumeMode").value != before.get("volumeMode").value {
        new.called("volumeMode", spec.get("volumeMode").value).invalid(e, IMMUTABLE);
    }
    let (affinity, old_affinity) = (spec.get("nodeAffinity"), before.get("nodeAffinity"));
    if old_affinity.exists() && !same(affinity.value, &with_stable_labels(old_affinity.value, affinity.value)) {
        let shown = Bad::of("core/v1.VolumeNodeAffinity", affinity.value);
        new.get("nodeAffinity").invalid_as(e, shown, "field is immutable, except for updating from beta label to GA");
    }
    let class = spec.get("volumeAttributesClassName");
    if before.get("volumeAttributesClassName").exists() && !class.exists() {
        class.forbidden(e, "update from non-nil value to nil is forbidden");
    }
}

/// The part of a specification that says what the volume is.
fn only_sources(spec: &Value) -> Value {
    let ty = schema().type_named("core/v1.PersistentVolumeSource").map(|id| schema().get(id));
    let fields = ty.into_iter().flat_map(|ty| &ty.fields);
    let sources = fields.filter_map(|field| Some((field.name.to_owned(), spec.get(field.name)?.clone())));
    Value::Object(sources.collect())
}

/// The old affinity with labels under the names that replaced theirs, where the new one has those.
fn with_stable_labels(old: &Value, new: &Value) -> Value {
    const STABLE: &[(&str, &str)] = &[
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ];
    let mut old = old.clone();
    let terms = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (at, term) in terms.into_iter().flatten().enumerate() {
        for list in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(list).and_then(Value::as_array_mut);
            for (index, requirement) in requirements.into_iter().flatten().enumerate() {
                let now = &new["required"]["nodeSelectorTerms"][at][list][index]["key"];
                let stable = STABLE.iter().find(|(beta, stable)| requirement["key"] == *beta && now == stable);
                if let (Some((_, stable)), Some(map)) = (stable, requirement.as_object_mut()) {
                    map.insert("key".to_owned(), (*stable).into());
                }
            }
        }
    }
    old
}
