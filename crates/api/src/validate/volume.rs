//! Validation of PersistentVolumes and volume sources beyond the rule tables.

use super::{prelude::*, selector, volume_claim};
use crate::render;
use crate::schema::schema;

pub fn validate_capacity(at: &FieldCursor, e: &mut ErrorList) {
    at.require_value(e);
    if !at.get("storage").exists() || at.len() > 1 {
        at.not_supported_as(e, at.value.clone(), &["storage"]);
    }
    for (_, amount) in at.entries() {
        volume_claim::validate_basic_quantity(&amount, e);
        if amount.quantity_sign() <= 0 {
            amount.invalid_text(e, "must be greater than zero");
        }
    }
}

/// Validates node affinity; an invalid stored selector is tolerated.
pub fn validate_volume_affinity(at: &FieldCursor, e: &mut ErrorList) {
    let required = at.get("required");
    if !required.exists() {
        return required.required(e, "must specify required node constraints");
    }
    selector::check_node_selector(&required, selector::is_invalid_node_selector(required.old), e);
}

pub fn validate_no_recycled_root(spec: &FieldCursor, e: &mut ErrorList) {
    let root = spec.get("hostPath").text_at("path");
    if root.starts_with('/') && root.split('/').all(|part| part.is_empty() || part == ".") {
        spec.get("persistentVolumeReclaimPolicy").forbidden(e, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// Validates a PersistentVolume update: the source is immutable.
pub fn validate_volume_change(new: &FieldCursor, e: &mut ErrorList) {
    let spec = new.get("spec");
    let before = spec.old_cursor();
    let mut given = volume_source(spec.value);
    let was = volume_source(before.value);
    if was["csi"].get("controllerExpandSecretRef").is_none()
        && let Some(csi) = given.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if !semantically_equal(&given, &was) {
        let shown = render::render_difference("core/v1.PersistentVolumeSource", &was, &given);
        let message = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        spec.get("persistentvolumesource").forbidden(e, message);
    }
    if spec.get("volumeMode").value != before.get("volumeMode").value {
        new.child_as("volumeMode", spec.get("volumeMode").value).invalid(e, IMMUTABLE);
    }
    let (affinity, old_affinity) = (spec.get("nodeAffinity"), before.get("nodeAffinity"));
    if old_affinity.exists()
        && !semantically_equal(affinity.value, &replace_beta_labels(old_affinity.value, affinity.value))
    {
        let shown = render_bad_value("core/v1.VolumeNodeAffinity", affinity.value);
        new.get("nodeAffinity").invalid_as(e, shown, "field is immutable, except for updating from beta label to GA");
    }
    let class = spec.get("volumeAttributesClassName");
    if before.get("volumeAttributesClassName").exists() && !class.exists() {
        class.forbidden(e, "update from non-nil value to nil is forbidden");
    }
}

/// The volume source fields of a spec.
fn volume_source(spec: &Value) -> Value {
    let ty = schema().type_named("core/v1.PersistentVolumeSource").map(|id| schema().get(id));
    let fields = ty.into_iter().flat_map(|ty| &ty.fields);
    let sources = fields.filter_map(|field| Some((field.name.to_owned(), spec.get(field.name)?.clone())));
    Value::Object(sources.collect())
}

/// Replaces beta labels of the old affinity where the new one has the stable labels.
fn replace_beta_labels(old: &Value, new: &Value) -> Value {
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

/// Validates an iSCSI initiator or target name; `unknown` is the message for an unknown kind.
pub fn validate_iscsi_name(at: &FieldCursor, unknown: &str, e: &mut ErrorList) {
    let text = at.text();
    let right = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => is_hex_name(text, 16),
        Some("naa") => is_hex_name(text, 32),
        _ => return at.invalid_text(e, unknown),
    };
    if !right {
        at.invalid_text(e, "must be valid format");
    }
}

/// Whether a text ends with a name such as `iqn.2001-04.com.example:storage.disk2`.
fn is_iqn(text: &str) -> bool {
    let Some((head, tail)) = text.split_once(':') else { return false };
    if tail.is_empty() || tail.contains(|c: char| ",;*&$|".contains(c) || c.is_whitespace()) {
        return false;
    }
    let Some(at) = head.rfind("iqn.") else { return false };
    let date = &head.as_bytes()[at + 4..];
    let is = |at: usize, right: fn(&u8) -> bool| date.get(at).is_some_and(right);
    (0..4).all(|at| is(at, u8::is_ascii_digit))
        && date.get(4) == Some(&b'-')
        && (5..7).all(|at| is(at, u8::is_ascii_digit))
        && date.get(7) == Some(&b'.')
        && date.len() > 8
        && date[8..].iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'.')
}

fn is_hex_name(text: &str, length: usize) -> bool {
    text.len() == 4 + length && text.bytes().skip(4).all(|c| c.is_ascii_alphanumeric())
}

const PORTAL_LENGTH: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// Limits the length of volume name and portal with an initiator.
pub fn validate_portal_length(volume: &FieldCursor, e: &mut ErrorList) {
    let name = volume.get("name");
    if name.text().len() + 1 + volume.get("iscsi").text_at("targetPortal").len() > 64 {
        name.invalid_text(e, PORTAL_LENGTH);
    }
}

/// As [`validate_portal_length`], for a PersistentVolume.
pub fn validate_named_portal_length(source: &FieldCursor, e: &mut ErrorList) {
    let name = source.root().get("metadata").text_at("name");
    let portal = source.child_as("targetportal", source.get("targetPortal").value);
    if name.len() + 1 + portal.text().len() > 64 {
        portal.invalid_text(e, PORTAL_LENGTH);
    }
}

pub fn validate_quobyte(registry: &FieldCursor, e: &mut ErrorList) {
    let source = registry.ancestor(1);
    if source.text_at("tenant").len() >= 65 {
        return source.get("tenant").required(e, "must be a UUID and may not exceed a length of 64 characters");
    }
    for _ in registry.text().split(',').filter(|pair| pair.matches(':').count() != 1 && !pair.contains("]:")) {
        registry.invalid_text(e, "must be a host:port pair or multiple pairs separated by commas");
    }
}

/// Rejects driver options in Kubernetes' domains.
pub fn validate_foreign_option(option: &FieldCursor, e: &mut ErrorList) {
    let key = option.name();
    let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
    if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
        option.invalid_as(e, key, "kubernetes.io and k8s.io namespaces are reserved");
    }
}
