//! Volumes in descriptions.

use api::Value;

use super::description::{Description, join_or_none, scalar_text};
use crate::object::ObjectFields;

/// A volume source: its field, its title, and the fields to show as label and path.
type VolumeRow = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const SOURCES: [VolumeRow; 18] = [
    ("hostPath", "HostPath (bare host directory volume)", &[("Path", "path"), ("HostPathType", "type")]),
    (
        "emptyDir",
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        &[("Medium", "medium"), ("SizeLimit", "sizeLimit")],
    ),
    (
        "gcePersistentDisk",
        "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        &[("PDName", "pdName"), ("FSType", "fsType"), ("Partition", "partition"), ("ReadOnly", "readOnly")],
    ),
    (
        "awsElasticBlockStore",
        "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        &[("VolumeID", "volumeID"), ("FSType", "fsType"), ("Partition", "partition"), ("ReadOnly", "readOnly")],
    ),
    (
        "gitRepo",
        "GitRepo (a volume that is pulled from git when the pod is created)",
        &[("Repository", "repository"), ("Revision", "revision")],
    ),
    ("secret", "Secret (a volume populated by a Secret)", &[("SecretName", "secretName"), ("Optional", "optional")]),
    ("configMap", "ConfigMap (a volume populated by a ConfigMap)", &[("Name", "name"), ("Optional", "optional")]),
    (
        "nfs",
        "NFS (an NFS mount that lasts the lifetime of a pod)",
        &[("Server", "server"), ("Path", "path"), ("ReadOnly", "readOnly")],
    ),
    (
        "iscsi",
        "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        &[
            ("TargetPortal", "targetPortal"),
            ("IQN", "iqn"),
            ("Lun", "lun"),
            ("ISCSIInterface", "iscsiInterface"),
            ("FSType", "fsType"),
            ("ReadOnly", "readOnly"),
            ("Portals", "portals"),
            ("DiscoveryCHAPAuth", "chapAuthDiscovery"),
            ("SessionCHAPAuth", "chapAuthSession"),
            ("SecretRef", "secretRef"),
            ("InitiatorName", "initiatorName"),
        ],
    ),
    (
        "persistentVolumeClaim",
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        &[("ClaimName", "claimName"), ("ReadOnly", "readOnly")],
    ),
    (
        "rbd",
        "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        &[
            ("CephMonitors", "monitors"),
            ("RBDImage", "image"),
            ("FSType", "fsType"),
            ("RBDPool", "pool"),
            ("RadosUser", "user"),
            ("Keyring", "keyring"),
            ("SecretRef", "secretRef"),
            ("ReadOnly", "readOnly"),
        ],
    ),
    (
        "cephfs",
        "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        &[
            ("Monitors", "monitors"),
            ("Path", "path"),
            ("User", "user"),
            ("SecretFile", "secretFile"),
            ("SecretRef", "secretRef"),
            ("ReadOnly", "readOnly"),
        ],
    ),
    (
        "fc",
        "FC (a Fibre Channel disk)",
        &[("TargetWWNs", "targetWWNs"), ("LUN", "lun"), ("FSType", "fsType"), ("ReadOnly", "readOnly")],
    ),
    ("image", "Image (a container image or OCI artifact)", &[("Reference", "reference"), ("PullPolicy", "pullPolicy")]),
    ("local", "LocalVolume (a persistent volume backed by local storage on a node)", &[("Path", "path")]),
    (
        "csi",
        "CSI (a Container Storage Interface (CSI) volume source)",
        &[("Driver", "driver"), ("FSType", "fsType"), ("VolumeHandle", "volumeHandle"), ("ReadOnly", "readOnly")],
    ),
    (
        "glusterfs",
        "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        &[("EndpointsName", "endpoints"), ("Path", "path"), ("ReadOnly", "readOnly")],
    ),
    (
        "ephemeral",
        "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
        &[],
    ),
];

const FALSE_FIELDS: [&str; 2] = ["readOnly", "optional"];

/// Describes volumes; `space` is the indentation of the title.
pub fn describe_volumes(out: &mut Description, volumes: &[Value], space: &str) {
    if volumes.is_empty() {
        out.raw(&format!("{space}Volumes:\t<none>\n"));
        return;
    }
    out.raw(&format!("{space}Volumes:\n"));
    for volume in volumes {
        let indent = if space.is_empty() { "  " } else { " " };
        out.raw(&format!("{space}{indent}{}:\n", volume.text("name")));
        describe_source(out, volume);
    }
}

/// Describes the source of a volume.
pub fn describe_source(out: &mut Description, volume: &Value) {
    if let Some(sources) = volume.at("projected.sources").and_then(Value::as_array) {
        return describe_projected(out, sources);
    }
    if let Some(items) = volume.at("downwardAPI") {
        return describe_downward(out, items.list("items"));
    }
    let Some((field, title, fields)) = SOURCES.iter().find(|(field, ..)| volume.at(field).is_some()) else {
        out.raw("    <unknown>\n");
        return;
    };
    let source = volume.at(field).cloned().unwrap_or_default();
    out.raw(&format!("    Type:\t{title}\n"));
    for (label, path) in *fields {
        let value = match source.at(path) {
            None if FALSE_FIELDS.contains(path) => "false".to_owned(),
            None if *path == "sizeLimit" => "<unset>".to_owned(),
            None if *path == "partition" || *path == "lun" => "0".to_owned(),
            Some(Value::Array(items)) => join_or_none(items, ","),
            value => scalar_text(value),
        };
        out.raw(&format!("    {label}:\t{value}\n"));
    }
    if *field == "csi" {
        let attributes = source.map("volumeAttributes").cloned().unwrap_or_default();
        if attributes.is_empty() {
            out.raw("    VolumeAttributes:\t<none>\n");
        } else {
            let pairs: Vec<String> =
                attributes.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            out.raw(&format!("    VolumeAttributes:\t    {}\n", pairs.join("\n                         ")));
        }
    }
}

fn describe_projected(out: &mut Description, sources: &[Value]) {
    out.raw("    Type:\tProjected (a volume that contains injected data from multiple sources)\n");
    for source in sources {
        if let Some(secret) = source.at("secret") {
            out.raw(&format!("    SecretName:\t{}\n    Optional:\t{}\n", secret.text("name"), secret.flag("optional")));
        } else if source.at("downwardAPI").is_some() {
            out.raw("    DownwardAPI:\ttrue\n");
        } else if let Some(map) = source.at("configMap") {
            out.raw(&format!("    ConfigMapName:\t{}\n    Optional:\t{}\n", map.text("name"), map.flag("optional")));
        } else if let Some(token) = source.at("serviceAccountToken") {
            out.raw(&format!("    TokenExpirationSeconds:\t{}\n", token.integer("expirationSeconds").unwrap_or(0)));
        }
    }
}

fn describe_downward(out: &mut Description, items: &[Value]) {
    out.raw("    Type:\tDownwardAPI (a volume populated by information about the pod)\n    Items:\n");
    for item in items {
        if let Some(field) = item.at("fieldRef") {
            out.raw(&format!("      {} -> {}\n", field.text("fieldPath"), item.text("path")));
        }
        if let Some(field) = item.at("resourceFieldRef") {
            out.raw(&format!("      {} -> {}\n", field.text("resource"), item.text("path")));
        }
    }
}
