//! Persistent volumes, and the kinds of volumes that pods share with them, as far as the tables cannot say what is right.

use super::{prelude::*, render, selector, volume_claim};
use crate::schema::schema;

pub fn capacity(at: &At, e: &mut Errors) {
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
pub fn volume_affinity(at: &At, e: &mut Errors) {
    let required = at.get("required");
    if !required.exists() {
        return required.required(e, "must specify required node constraints");
    }
    selector::nodes(&required, selector::is_faulty_for_nodes(required.old), e);
}

pub fn no_recycled_root(spec: &At, e: &mut Errors) {
    let root = spec.get("hostPath").text_of("path");
    if root.starts_with('/') && root.split('/').all(|part| part.is_empty() || part == ".") {
        spec.get("persistentVolumeReclaimPolicy").forbidden(e, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// The source of a volume stays, and nearly all that says where it is.
pub fn volume_change(new: &At, e: &mut Errors) {
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
        let shown = render::difference("core/v1.PersistentVolumeSource", &was, &given);
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

/// The faults of the name of an initiator or a target; `unknown` is said of one of no known kind.
pub fn iscsi_name(at: &At, unknown: &str, e: &mut Errors) {
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

/// `iqn.2001-04.com.example:storage.disk2`, anywhere up to the end.
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

/// The name of a pod's volume and its portal together have a limit where an initiator is named.
pub fn portal_length(volume: &At, e: &mut Errors) {
    let name = volume.get("name");
    if name.text().len() + 1 + volume.get("iscsi").text_of("targetPortal").len() > 64 {
        name.invalid_text(e, PORTAL_LENGTH);
    }
}

/// As [`portal_length`], for a persistent volume, which is named in its metadata.
pub fn named_portal_length(source: &At, e: &mut Errors) {
    let name = source.whole().get("metadata").text_of("name");
    let portal = source.called("targetportal", source.get("targetPortal").value);
    if name.len() + 1 + portal.text().len() > 64 {
        portal.invalid_text(e, PORTAL_LENGTH);
    }
}

pub fn quobyte(registry: &At, e: &mut Errors) {
    let source = registry.up(1);
    if source.text_of("tenant").len() >= 65 {
        return source.get("tenant").required(e, "must be a UUID and may not exceed a length of 64 characters");
    }
    for _ in registry.text().split(',').filter(|pair| pair.matches(':').count() != 1 && !pair.contains("]:")) {
        registry.invalid_text(e, "must be a host:port pair or multiple pairs separated by commas");
    }
}

/// Options of a driver are not in Kubernetes' own domains.
pub fn foreign_option(option: &At, e: &mut Errors) {
    let key = option.name();
    let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
    if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
        option.invalid_as(e, key, "kubernetes.io and k8s.io namespaces are reserved");
    }
}
