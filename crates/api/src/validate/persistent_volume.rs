//! Validation of persistent volumes.

use super::{
    Errors,
    at::At,
    diff, names, path,
    render::{self, same},
    selector, volume_claim, volume_source as source,
};
use crate::Value;

type Check = fn(&At, &mut Errors);

/// Field, name when it is one too many, name that it is checked under, check.
const SOURCES: &[(&str, &str, &str, Check)] = &[
    ("hostPath", "hostPath", "hostPath", source::host_path),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", source::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", source::aws_disk),
    ("glusterfs", "glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", "flocker", source::flocker),
    ("nfs", "nfs", "nfs", source::nfs),
    ("rbd", "rbd", "rbd", source::rbd),
    ("quobyte", "quobyte", "quobyte", source::quobyte),
    ("cephfs", "cephFS", "cephfs", source::cephfs),
    ("iscsi", "iscsi", "iscsi", |at, e| {
        source::iscsi(at, "must be valid format", e);
        source::secret(&at.get("secretRef"), &["name"], e);
    }),
    ("cinder", "cinder", "cinder", |at, e| source::cinder(at, &["name", "namespace"], e)),
    ("fc", "fc", "fc", source::fibre_channel),
    ("flexVolume", "flexVolume", "flexVolume", source::flex),
    ("azureFile", "azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", |at, e| {
        at.get("volumePath").require(e);
    }),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", |at, e| {
        at.get("pdID").require(e);
    }),
    ("portworxVolume", "portworxVolume", "portworxVolume", |at, e| {
        at.get("volumeID").require(e);
    }),
    ("azureDisk", "azureDisk", "azureDisk", source::azure_disk),
    ("scaleIO", "scaleIO", "scaleIO", source::scale_io),
    ("local", "local", "local", local),
    ("storageos", "storageos", "storageos", |at, e| source::storage_os(at, &["name", "namespace"], e)),
    ("csi", "csi", "csi", csi),
];

const INLINE: &str = "may not be specified in the context of inline volumes";

/// The faults of a persistent volume.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let before = old.map(|old| old.get("spec").value);
    spec(&new.get("spec"), new.get("metadata").get("name").text(), false, before, e);
    if let Some(old) = old {
        changed(new, old, e);
    }
}

/// The faults of the specification of a volume, of its own or within an attachment.
pub(super) fn spec(at: &At, name: &str, inline: bool, old: Option<&Value>, e: &mut Errors) {
    if inline {
        for field in ["claimRef", "capacity"] {
            if at.get(field).exists() {
                at.get(field).forbidden(e, INLINE);
            }
        }
        if !at.get("csi").exists() {
            at.get("csi").required(e, "has to be specified in the context of inline volumes");
        }
    }
    at.get("accessModes").require(e);
    volume_claim::access_modes(&at.get("accessModes"), e);
    if !inline {
        capacity(&at.get("capacity"), e);
    }
    let policy = at.get("persistentVolumeReclaimPolicy");
    if inline && !policy.is_empty() && policy.text() != "Retain" {
        policy.forbidden(e, "may only be Retain in the context of inline volumes");
    } else if !inline && !policy.is_empty() {
        policy.one_of(e, &["Delete", "Recycle", "Retain"]);
    }
    node_affinity(&at.get("nodeAffinity"), inline, old, e);
    sources(at, name, e);
    let root = at.get("hostPath").get("path").text();
    if policy.text() == "Recycle" && root.starts_with('/') && root.split('/').all(|part| part.is_empty() || part == ".")
    {
        policy.forbidden(e, "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = at.get("storageClassName");
    if inline && !class.is_empty() {
        class.forbidden(e, INLINE);
    } else {
        class.optional_form(e, names::subdomain);
    }
    let mode = at.get("volumeMode");
    if !inline {
        mode.one_of(e, &["Block", "Filesystem"]);
    } else if mode.exists() && mode.text() != "Filesystem" {
        mode.forbidden(e, "may not specify volumeMode other than Filesystem in the context of inline volumes");
    }
    if !inline {
        attributes_class(at, e);
    }
}

fn capacity(at: &At, e: &mut Errors) {
    at.require(e);
    if !at.get("storage").exists() || at.len() > 1 {
        let shown = if at.exists() { at.value.clone() } else { Value::Null };
        e.push(super::FieldError::not_supported(at.to_string(), shown, &["storage"]));
    }
    for (_, amount) in at.entries() {
        volume_claim::basic_amount(&amount, e);
        if amount.sign() <= 0 {
            amount.invalid_text(e, "must be greater than zero");
        }
    }
}

fn node_affinity(at: &At, inline: bool, old: Option<&Value>, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    if inline {
        return at.forbidden(e, INLINE);
    }
    let required = at.get("required");
    if !required.exists() {
        return required.required(e, "must specify required node constraints");
    }
    let lenient = old.is_some_and(|old| {
        let mut faults = Vec::new();
        let before = &old["nodeAffinity"]["required"];
        if !before.is_null() {
            selector::nodes(&At::top(before), false, &mut faults);
        }
        !faults.is_empty()
    });
    selector::nodes(&required, lenient, e);
}

fn sources(at: &At, name: &str, e: &mut Errors) {
    let mut count = 0;
    for (field, surplus, place, check) in SOURCES {
        let given = at.get(field);
        if !given.exists() {
            continue;
        }
        if count > 0 && *field != "flexVolume" {
            at.get(surplus).forbidden(e, "may not specify more than 1 volume type");
            continue;
        }
        count += 1;
        check(&at.called(place, given.value), e);
        if *field == "local" && !at.get("nodeAffinity").exists() {
            at.get("nodeAffinity").required(e, "Local volume requires node affinity");
        }
        if *field == "iscsi" && given.get("initiatorName").exists() {
            let portal = given.called("targetportal", given.get("targetPortal").value);
            if name.len() + 1 + portal.text().len() > 64 {
                portal.invalid_text(e, source::PORTAL_LENGTH);
            }
        }
    }
    if count == 0 {
        at.required(e, "must specify a volume type");
    }
}

fn attributes_class(at: &At, e: &mut Errors) {
    let class = at.get("volumeAttributesClassName");
    if !class.exists() {
        return;
    }
    if class.is_empty() {
        class.required(e, "an empty string is disallowed");
    } else {
        class.form(e, names::subdomain);
    }
    if !at.get("csi").exists() {
        at.get("csi").required(e, "has to be specified when using volumeAttributesClassName");
    }
}

fn glusterfs(at: &At, e: &mut Errors) {
    source::glusterfs(at, e);
    let namespace = at.get("endpointsNamespace");
    if namespace.exists() && namespace.is_empty() {
        namespace.invalid_text(e, "if the endpointnamespace is set, it must be a valid namespace name");
    } else {
        namespace.optional_form(e, names::label);
    }
}

fn azure_file(at: &At, e: &mut Errors) {
    source::azure_file(at, e);
    let namespace = at.get("secretNamespace");
    if namespace.exists() {
        namespace.require(e);
    }
}

fn local(at: &At, e: &mut Errors) {
    if at.get("path").require(e) {
        path::no_backsteps(&at.get("path"), e);
    }
}

fn csi(at: &At, e: &mut Errors) {
    source::csi_driver(&at.get("driver"), e);
    at.get("volumeHandle").require(e);
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = at.get(field);
        if secret.exists() {
            secret.get("name").required_form(e, names::subdomain);
            secret.get("namespace").required_form(e, names::label);
        }
    }
}

fn changed(new: &At, old: &At, e: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
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
        new.called("volumeMode", spec.get("volumeMode").value).invalid(e, super::at::IMMUTABLE);
    }
    let (affinity, old_affinity) = (spec.get("nodeAffinity"), before.get("nodeAffinity"));
    if old_affinity.exists() && !same(affinity.value, &with_stable_labels(old_affinity.value, affinity.value)) {
        let shown = super::error::Bad::Shown(render::internal("core/v1.VolumeNodeAffinity", affinity.value));
        let place = new.get("nodeAffinity");
        place.invalid_as(e, shown, "field is immutable, except for updating from beta label to GA");
    }
    let class = spec.get("volumeAttributesClassName");
    if before.get("volumeAttributesClassName").exists() && !class.exists() {
        class.forbidden(e, "update from non-nil value to nil is forbidden");
    }
}

fn only_sources(spec: &Value) -> Value {
    let sources = SOURCES.iter().filter_map(|(field, ..)| Some(((*field).to_owned(), spec.get(field)?.clone())));
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
