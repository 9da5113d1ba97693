//! Where containers have their volumes.

use super::spec_of;
use crate::{
    Value,
    validate::{
        Errors,
        at::At,
        names,
        rules::{self, Functions},
    },
};

pub(super) const FUNCTIONS: Functions = functions! { mount mount_points device device_paths };

/// A volume by its name. One with faults of its own counts as none; as long as there are no faults at all, none has.
fn volume<'v>(part: &At<'v, '_>, name: &str, e: &Errors) -> Option<&'v Value> {
    let spec = spec_of(part);
    let volumes = spec.get("volumes");
    let mut named = volumes.items().filter(|volume| volume.text_of("name") == name);
    named.find(|volume| e.is_empty() || !rules::is_faulty("Volume", volume)).map(|volume| volume.value)
}

/// The faults of one mount. Upstream tells some of them at the list.
fn mount(mount: &At, e: &mut Errors) {
    let (list, name, point) = (mount.up(1), mount.get("name"), mount.get("mountPath"));
    let devices = list.up(1).get("volumeDevices");
    name.require(e);
    if volume(mount, name.text(), e).is_none() {
        name.not_found(e);
    }
    point.require(e);
    if devices.find("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeDevices");
    }
    if devices.find("devicePath", point.text()).is_some() {
        point.invalid_text(e, "must not already exist as a path in volumeDevices");
    }
    if mount.len() > 2 {
        options(mount, e);
    }
}

/// The faults of what most mounts do not say.
fn options(mount: &At, e: &mut Errors) {
    let list = mount.up(1);
    let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
    list.get("subPath").form_as(e, sub.text(), names::relative);
    if !expression.is_empty() && !sub.is_empty() {
        expression.invalid_text(e, "subPathExpr and subPath are mutually exclusive");
    }
    list.get("subPathExpr").form_as(e, expression.text(), names::relative);
    propagation(&list.called("mountPropagation", mount.get("mountPropagation").value), e);
    read_only(&list.called("recursiveReadOnly", mount.get("recursiveReadOnly").value), mount, e);
}

fn mount_points(list: &At, e: &mut Errors) {
    list.unique(
        |mount| mount.text_of("mountPath"),
        |mount, _| mount.get("mountPath").invalid_text(e, "must be unique"),
    );
}

fn propagation(at: &At, e: &mut Errors) {
    at.one_of(e, &["Bidirectional", "HostToContainer", "None"]);
    let container = at.up(2);
    if at.text() == "Bidirectional" && !container.get("securityContext").get("privileged").is_true() {
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
            if !matches!(mount.text_of("mountPropagation"), "" | "None") {
                at.forbidden(e, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => at.one_of(e, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// The faults of one device.
fn device(device: &At, e: &mut Errors) {
    let (name, path) = (device.get("name"), device.get("devicePath"));
    let mounts = device.up(2).get("volumeMounts");
    name.require(e);
    match volume(device, name.text(), e) {
        None => name.not_found(e),
        Some(source) if source.get("persistentVolumeClaim").is_none() && source.get("ephemeral").is_none() => {
            let message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            name.invalid_text(e, message);
        }
        Some(_) => {}
    }
    path.require(e);
    if path.text().split('/').any(|part| part == "..") {
        path.invalid_text(e, "can not contain backsteps ('..')");
    }
    if mounts.find("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeMounts");
    }
    if mounts.find("mountPath", path.text()).is_some() {
        path.invalid_text(e, "must not already exist as a path in volumeMounts");
    }
}

fn device_paths(list: &At, e: &mut Errors) {
    let up = |path: &str| path.split('/').any(|part| part == "..");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for device in list.items() {
        let key = (device.text_of("name"), device.text_of("devicePath"));
        if !key.0.is_empty() && seen.iter().any(|(name, _)| *name == key.0) {
            device.get("name").invalid_text(e, "must be unique");
        }
        if seen.iter().any(|(_, path)| *path == key.1 && !up(path)) {
            device.get("devicePath").invalid_text(e, "must be unique");
        }
        seen.push(key);
    }
}
