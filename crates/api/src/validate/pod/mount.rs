//! Where containers have their volumes.

use super::spec_of;
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { mounted_volume mount_points device device_paths };

/// A volume by its name. One with faults of its own counts as none; as long as there are no faults at all, none has.
fn volume<'v>(part: &At<'v, '_>, name: &str, e: &Errors) -> Option<&'v Value> {
    let spec = spec_of(part);
    let volumes = spec.get("volumes");
    let mut named = volumes.items().filter(|volume| volume.text_of("name") == name);
    named.find(|volume| e.is_empty() || !rules::is_faulty("Volume", volume)).map(|volume| volume.value)
}

/// A mount has a volume that is there, and no device has it too.
fn mounted_volume(mount: &At, e: &mut Errors) {
    let (name, point) = (mount.get("name"), mount.get("mountPath"));
    let devices = mount.up(2).get("volumeDevices");
    if volume(mount, name.text(), e).is_none() {
        name.not_found(e);
    }
    if devices.find("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeDevices");
    }
    if devices.find("devicePath", point.text()).is_some() {
        point.invalid_text(e, "must not already exist as a path in volumeDevices");
    }
}

fn mount_points(list: &At, e: &mut Errors) {
    list.unique(
        |mount| mount.text_of("mountPath"),
        |mount, _| mount.get("mountPath").invalid_text(e, "must be unique"),
    );
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
