//! Validation of where containers have their volumes.

use super::spec::Whole;
use crate::validate::{Errors, at::At, path};

/// The faults of mounts of file systems. Upstream tells some of them at the list.
pub(super) fn mounts(container: &At, whole: &Whole, e: &mut Errors) {
    let (list, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mut points = Vec::new();
    for mount in list.items() {
        let (name, point) = (mount.get("name"), mount.get("mountPath"));
        name.require(e);
        if !whole.volumes.iter().any(|(volume, _)| *volume == name.text()) {
            name.not_found(e);
        }
        point.require(e);
        if points.contains(&point.text()) {
            point.invalid_text(e, "must be unique");
        }
        points.push(point.text());
        if devices.items().any(|device| device.get("name").text() == name.text()) {
            name.invalid_text(e, "must not already exist in volumeDevices");
        }
        if devices.items().any(|device| device.get("devicePath").text() == point.text()) {
            point.invalid_text(e, "must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        if !sub.is_empty() {
            path::relative(&list.called("subPath", sub.value), e);
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                expression.invalid_text(e, "subPathExpr and subPath are mutually exclusive");
            }
            path::relative(&list.called("subPathExpr", expression.value), e);
        }
        propagation(&list.called("mountPropagation", mount.get("mountPropagation").value), container, e);
        read_only(&list.called("recursiveReadOnly", mount.get("recursiveReadOnly").value), &mount, e);
    }
}

fn propagation(at: &At, container: &At, e: &mut Errors) {
    at.one_of(e, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.get("securityContext").get("privileged").is_true();
    if at.text() == "Bidirectional" && !privileged {
        at.forbidden(e, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn read_only(at: &At, mount: &At, e: &mut Errors) {
    match at.text() {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").is_true() {
                at.forbidden(e, "may only be specified when readOnly is true");
            }
            if !matches!(mount.get("mountPropagation").text(), "" | "None") {
                at.forbidden(e, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => at.one_of(e, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// The faults of devices.
pub(super) fn devices(container: &At, whole: &Whole, e: &mut Errors) {
    let (list, mounts) = (container.get("volumeDevices"), container.get("volumeMounts"));
    let (mut paths, mut seen): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for device in list.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        let volume = whole.volumes.iter().find(|(volume, _)| *volume == name.text());
        name.require(e);
        if seen.contains(&name.text()) {
            name.invalid_text(e, "must be unique");
        }
        match volume {
            None => name.not_found(e),
            Some((_, source)) if source.get("persistentVolumeClaim").is_none() && source.get("ephemeral").is_none() => {
                let message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                name.invalid_text(e, message);
            }
            Some(_) => {}
        }
        path.require(e);
        if paths.contains(&path.text()) {
            path.invalid_text(e, "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid_text(e, "can not contain backsteps ('..')");
        } else {
            paths.push(path.text());
        }
        if mounts.items().any(|mount| mount.get("name").text() == name.text()) {
            name.invalid_text(e, "must not already exist in volumeMounts");
        }
        if mounts.items().any(|mount| mount.get("mountPath").text() == path.text()) {
            path.invalid_text(e, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            seen.push(name.text());
        }
    }
}
