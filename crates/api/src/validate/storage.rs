//! Validation of storage classes, attachments and what CSI drivers say of themselves.

use super::{Errors, at::At, names, persistent_volume, render::same, selector, volume_source as source};
use crate::Value;

/// The faults of a storage class.
pub(super) fn class(new: &At, old: Option<&At>, e: &mut Errors) {
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            new.get(field).unchanged(e, &old.get(field));
        }
        return;
    }
    provisioner(&new.get("provisioner"), e);
    parameters(&new.get("parameters"), true, e);
    let policy = new.get("reclaimPolicy");
    if !policy.is_empty() {
        policy.one_of(e, &["Delete", "Retain"]);
    }
    let mode = new.get("volumeBindingMode");
    if mode.exists() {
        mode.one_of(e, &["Immediate", "WaitForFirstConsumer"]);
    } else {
        mode.required(e, "");
    }
    topologies(&new.get("allowedTopologies"), e);
}

fn provisioner(at: &At, e: &mut Errors) {
    if at.require(e) {
        let name = at.text().to_lowercase();
        names::qualified(&name).into_iter().for_each(|fault| at.invalid_as(e, name.as_str(), fault));
    }
}

fn parameters(at: &At, may_be_empty: bool, e: &mut Errors) {
    const MOST_BYTES: usize = 256 * 1024;
    if at.len() > 512 {
        return at.too_long(e, 512);
    }
    let mut size = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            at.invalid_as(e, key, "field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > MOST_BYTES {
        at.too_long(e, MOST_BYTES);
    }
    if !may_be_empty && at.is_empty() {
        at.required(e, "must contain at least one key/value pair");
    }
}

fn topologies(list: &At, e: &mut Errors) {
    // Upstream begins with as many empty terms as there are terms.
    let mut seen: Vec<Vec<(String, Vec<String>)>> = vec![Vec::new(); list.len()];
    for term in list.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        for requirement in expressions.items() {
            let (key, values) = (requirement.get("key"), requirement.get("values"));
            values.require(e);
            let mut texts: Vec<String> = Vec::new();
            for value in values.items() {
                if texts.iter().any(|text| text == value.text()) {
                    value.duplicate(e, value.text());
                }
                texts.push(value.text().to_owned());
            }
            key.form(e, names::qualified);
            if keys.iter().any(|(other, _)| other == key.text()) {
                key.duplicate(e, key.text());
            }
            texts.sort_unstable();
            keys.push((key.text().to_owned(), texts));
        }
        keys.sort_unstable();
        seen.iter().filter(|other| **other == keys).for_each(|_| expressions.duplicate(e, ""));
        seen.push(keys);
    }
}

/// The faults of an attachment of a volume to a node.
pub(super) fn attachment(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    source::csi_driver(&spec.get("attacher"), e);
    let volume = spec.get("source");
    let (inline, name) = (volume.get("inlineVolumeSpec"), volume.get("persistentVolumeName"));
    let message = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.exists(), name.exists()) {
        (false, false) => volume.required(e, message),
        (true, true) => volume.forbidden(e, message),
        (false, true) if name.is_empty() => name.required(e, "must specify non empty persistentVolumeName"),
        (false, true) => {}
        (true, false) => persistent_volume::spec(&inline, "", true, None, e),
    }
    spec.get("nodeName").form(e, names::subdomain);
    attachment_status(&new.get("status"), e);
    if name.exists() {
        name.form(e, names::subdomain);
    }
    if let Some(old) = old {
        spec.unchanged_internal(e, &old.get("spec"), "storage/v1.VolumeAttachmentSpec");
    }
}

fn attachment_status(status: &At, e: &mut Errors) {
    const MOST_BYTES: usize = 256 * 1024;
    let metadata = status.get("attachmentMetadata");
    let size: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > MOST_BYTES {
        metadata.too_long(e, MOST_BYTES);
    }
    for field in ["attachError", "detachError"] {
        let error = status.get(field);
        if error.get("message").text().len() > 1024 {
            error.get("message").too_long(e, MOST_BYTES);
        }
        if error.get("errorCode").int() < 0 {
            error.get("errorCode").invalid(e, names::range(0, i64::from(i32::MAX)));
        }
    }
}

/// The faults of the status of an attachment.
pub(super) fn attachment_change(new: &At, old: &At, e: &mut Errors) {
    attachment(new, Some(old), e);
}

/// The faults of what a node's drivers are.
pub(super) fn csi_node(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let list = spec.get("drivers");
    let mut seen = Vec::new();
    for driver in list.items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        source::csi_driver(&name, e);
        id.require(e);
        if id.text().len() > 256 {
            id.invalid_text(e, "must be 256 characters or less");
        }
        driver.get("allocatable").get("count").nonnegative(e);
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        let mut keys = Vec::new();
        for key in driver.get("topologyKeys").texts() {
            if key.is_empty() {
                driver.required(e, "");
            }
            if keys.contains(&key) {
                driver.duplicate(e, key);
            }
            keys.push(key);
            names::qualified(key).into_iter().for_each(|fault| driver.invalid_as(e, key, fault));
        }
    }
    let Some(old) = old else { return };
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|map| map.remove("allocatable"));
        driver
    };
    for was in old.get("spec").get("drivers").value.as_array().into_iter().flatten() {
        for driver in list.items().filter(|driver| driver.value["name"] == was["name"]) {
            if !same(&fixed(driver.value), &fixed(was)) {
                let shown = super::render::internal("storage/v1.CSINodeDriver", &fixed(driver.value));
                list.invalid_as(e, super::error::Bad::Shown(shown), super::at::IMMUTABLE);
            }
        }
    }
}

/// The faults of a driver.
pub(super) fn csi_driver(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let required = [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ];
    for (_, shown) in required.into_iter().filter(|(field, _)| !spec.get(field).exists()) {
        spec.get(shown).required(e, "");
    }
    spec.get("fsGroupPolicy").one_of(e, &["File", "None", "ReadWriteOnceWithFSType"]);
    token_requests(&spec.get("tokenRequests"), e);
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.texts().filter(|mode| !["Persistent", "Ephemeral"].contains(mode)) {
        e.push(super::FieldError::not_supported(modes.to_string(), mode, &["Persistent", "Ephemeral"]));
    }
    if !spec.get("seLinuxMount").exists() {
        spec.get("seLinuxMount").required(e, "");
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.exists() && period.int() < 10 {
        period.invalid(e, "must be greater than or equal to 10 seconds");
    }
    let secrets = spec.get("serviceAccountTokenInSecrets");
    if secrets.exists() && spec.get("tokenRequests").is_empty() {
        secrets.invalid(e, "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
    }
    if let Some(old) = old {
        let before = old.get("spec");
        let attach = spec.called("attachedRequired", spec.get("attachRequired").value);
        attach.unchanged(e, &before.get("attachRequired"));
        modes.unchanged(e, &before.get("volumeLifecycleModes"));
    }
}

fn token_requests(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for request in list.items() {
        let (audience, expiry) = (request.get("audience"), request.get("expirationSeconds"));
        if seen.contains(&audience.text()) {
            audience.duplicate(e, audience.text());
            continue;
        }
        seen.push(audience.text());
        if expiry.exists() && expiry.int() < 600 {
            expiry.invalid(e, "may not specify a duration less than 10 minutes");
        }
        if expiry.int() > 1 << 32 {
            expiry.invalid(e, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

/// The faults of what capacity a driver reports.
pub(super) fn capacity(new: &At, old: Option<&At>, e: &mut Errors) {
    let (topology, class) = (new.get("nodeTopology"), new.get("storageClassName"));
    if let Some(old) = old {
        if !same(topology.value, old.get("nodeTopology").value) {
            topology.invalid_external(e, "meta/v1.LabelSelector", super::at::IMMUTABLE);
        }
        if class.text() != old.get("storageClassName").text() {
            class.invalid_text(e, super::at::IMMUTABLE);
        }
        return;
    }
    selector::selector(&topology, e);
    class.form(e, names::subdomain);
    if new.get("capacity").sign() < 0 {
        new.get("capacity").invalid_text(e, "must be greater than or equal to 0");
    }
}

/// What is particular to a changed class of volume attributes.
pub(super) fn attributes_change(new: &At, old: &At, e: &mut Errors) {
    for field in ["driverName", "parameters"] {
        if !same(new.get(field).value, old.get(field).value) {
            new.get(field).forbidden(e, format!("updates to {field} are forbidden."));
        }
    }
}

/// The faults of a class of volume attributes.
pub(super) fn attributes_class(new: &At, _: Option<&At>, e: &mut Errors) {
    provisioner(&new.get("driverName"), e);
    parameters(&new.get("parameters"), false, e);
}
