//! The names and the order of fields in upstream's internal types, where they differ from the served ones.

use crate::{
    Map, Value,
    schema::{Field, Type},
};

/// Beginnings of names that Go writes in capitals.
const CAPITALS: &[&str] = &[
    "api", "aws", "ca", "cidr", "csi", "dns", "fc", "fs", "gce", "gid", "gmsa", "grpc", "http", "id", "ip", "iqn",
    "iscsi", "nfs", "os", "pd", "qos", "rbd", "se", "ssl", "tcp", "tls", "ttl", "tty", "uid", "uri", "url", "uuid",
    "wwid",
];

/// Names that follow no rule.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("cephfs", "CephFS"),
    ("storageos", "StorageOS"),
    ("cidrs", "CIDRs"),
    ("wwids", "WWIDs"),
    ("diskURI", "DataDiskURI"),
    ("pdID", "PdID"),
    ("openAPIV3Schema", "OpenAPIV3Schema"),
    ("externalID", "DoNotUseExternalID"),
    ("lastState", "LastTerminationState"),
    ("chapAuthDiscovery", "DiscoveryCHAPAuth"),
    ("chapAuthSession", "SessionCHAPAuth"),
];

/// Names in the types of Ceph's block devices.
const RBD: &[(&str, &str)] =
    &[("monitors", "CephMonitors"), ("image", "RBDImage"), ("pool", "RBDPool"), ("user", "RadosUser")];

/// Names of the values of a device's attribute.
const ATTRIBUTE: &[(&str, &str)] = &[
    ("int", "IntValue"),
    ("bool", "BoolValue"),
    ("string", "StringValue"),
    ("version", "VersionValue"),
    ("ints", "IntValues"),
    ("bools", "BoolValues"),
    ("strings", "StringValues"),
    ("versions", "VersionValues"),
];

/// The Go name of a field of a type.
pub(super) fn go_name(ty: &str, name: &str) -> String {
    let own = match ty {
        ty if ty.starts_with("core/v1.RBD") => RBD,
        ty if ty.ends_with(".DeviceAttribute") => ATTRIBUTE,
        _ => &[],
    };
    if let Some((_, go)) = own.iter().chain(EXCEPTIONS).find(|(served, _)| *served == name) {
        return (*go).to_owned();
    }
    let end = name.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(name.len());
    let (head, rest) = name.split_at(end);
    let word_ends = rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_uppercase());
    if word_ends && CAPITALS.contains(&head) {
        return format!("{}{rest}", head.to_uppercase());
    }
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

const VOLUME: &str = "name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs \
    persistentVolumeClaim rbd quobyte flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume azureDisk \
    photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image";
const PERSISTENT: &str = "gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi flexVolume cinder cephfs \
    fc flocker azureFile vsphereVolume azureDisk photonPersistentDisk portworxVolume scaleIO local storageos csi";

const POD: &str = "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds \
    activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName automountServiceAccountToken nodeName securityContext \
    imagePullSecrets hostname subdomain setHostnameAsFQDN affinity schedulerName tolerations hostAliases priorityClassName \
    priority preemptionPolicy dnsConfig readinessGates runtimeClassName overhead enableServiceLinks topologySpreadConstraints os \
    schedulingGates resourceClaims resources hostnameOverride schedulingGroup";
const POD_SECURITY: &str = "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups \
    supplementalGroupsPolicy fsGroup fsGroupChangePolicy sysctls seccompProfile appArmorProfile seLinuxChangePolicy";

/// Types whose fields stand in another order internally, or are not all there.
const ORDERS: &[(&str, &str)] = &[
    ("core/v1.PodSpec", POD),
    ("core/v1.PodSecurityContext", POD_SECURITY),
    ("core/v1.Volume", VOLUME),
    ("core/v1.PersistentVolumeSource", PERSISTENT),
    (
        "batch/v1.JobSpec",
        "parallelism completions podFailurePolicy successPolicy activeDeadlineSeconds backoffLimit backoffLimitPerIndex \
         maxFailedIndexes selector manualSelector template ttlSecondsAfterFinished completionMode suspend \
         podReplacementPolicy managedBy",
    ),
];

/// What a pod says about the host is in its security context internally.
const OF_HOST: &[&str] = &["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// The fields in the order in which upstream's internal type has them.
pub(super) fn field_order(ty: &Type) -> Vec<&Field> {
    match ORDERS.iter().find(|(name, _)| *name == ty.name) {
        Some((_, order)) => order.split_whitespace().filter_map(|name| ty.field(name)).collect(),
        None => ty.fields.iter().collect(),
    }
}

/// The security context of a pod with what upstream keeps there: the text of its first fields, and the rest.
pub(super) fn host_fields(spec: &Value) -> Vec<(String, String)> {
    let empty = Map::new();
    let map = spec.as_object().unwrap_or(&empty);
    let shown = |name: &str, zero: &str| map.get(name).map_or_else(|| zero.to_owned(), Value::to_string);
    let pointer = |name: &str| ["shareProcessNamespace", "hostUsers"].contains(&name);
    let field = |name: &&str| (go_name("", name), shown(name, if pointer(name) { "null" } else { "false" }));
    OF_HOST.iter().map(field).collect()
}
