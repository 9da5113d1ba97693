//! Which objects an object of a node leads to: what a pod needs, and what a volume needs.

use api::{Value, meta};

use super::graph::{Kind, Object};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Volumes of pods that name a secret, and where.
pub const POD_SECRETS: &[(&str, &[&str])] = &[
    ("azureFile", &["secretName"]),
    ("cephfs", &["secretRef", "name"]),
    ("cinder", &["secretRef", "name"]),
    ("flexVolume", &["secretRef", "name"]),
    ("rbd", &["secretRef", "name"]),
    ("secret", &["secretName"]),
    ("scaleIO", &["secretRef", "name"]),
    ("iscsi", &["secretRef", "name"]),
    ("storageos", &["secretRef", "name"]),
    ("csi", &["nodePublishSecretRef", "name"]),
];
/// Persistent volumes that name a secret for the kubelet, where, and whether it is in the namespace of the claim unless
/// it says otherwise.
const VOLUME_SECRETS: &[(&str, &str, bool)] = &[
    ("cephfs", "secretRef", true),
    ("cinder", "secretRef", false),
    ("flexVolume", "secretRef", true),
    ("rbd", "secretRef", true),
    ("scaleIO", "secretRef", true),
    ("iscsi", "secretRef", true),
    ("storageos", "secretRef", false),
    ("csi", "nodePublishSecretRef", false),
    ("csi", "nodeStageSecretRef", false),
    ("csi", "nodeExpandSecretRef", false),
];

/// What the node of a pod may read for it.
pub fn of_pod(pod: &Value) -> Vec<Object> {
    let spec = &pod["spec"];
    // A node makes its own mirror pods: they must not open anything to it.
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Vec::new();
    }
    let mut found: Vec<(Kind, &str)> = vec![(Kind::ServiceAccount, meta::string_at(spec, &["serviceAccountName"]))];
    let secrets = meta::list_at(spec, &["imagePullSecrets"]).iter();
    found.extend(secrets.map(|secret| (Kind::Secret, meta::string_at(secret, &["name"]))));
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        meta::list_at(spec, &[list]).iter().for_each(|container| of_container(container, &mut found));
    }
    meta::list_at(spec, &["volumes"]).iter().for_each(|volume| of_volume_source(volume, &mut found));
    found.extend(claims(pod).map(|name| (Kind::ResourceClaim, name)));
    let namespace = meta::namespace(pod);
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    let mut objects: Vec<Object> = named.map(|(kind, name)| Object::new(kind, namespace, name)).collect();
    for volume in meta::list_at(spec, &["volumes"]).iter().filter(|volume| volume.get("ephemeral").is_some()) {
        let claim = format!("{}-{}", meta::name(pod), meta::string_at(volume, &["name"]));
        objects.push(Object::new(Kind::Claim, namespace, &claim));
    }
    objects
}

fn of_container<'a>(container: &'a Value, found: &mut Vec<(Kind, &'a str)>) {
    for source in meta::list_at(container, &["envFrom"]) {
        found.push((Kind::Secret, meta::string_at(source, &["secretRef", "name"])));
        found.push((Kind::ConfigMap, meta::string_at(source, &["configMapRef", "name"])));
    }
    for variable in meta::list_at(container, &["env"]) {
        found.push((Kind::Secret, meta::string_at(variable, &["valueFrom", "secretKeyRef", "name"])));
        found.push((Kind::ConfigMap, meta::string_at(variable, &["valueFrom", "configMapKeyRef", "name"])));
    }
}

fn of_volume_source<'a>(volume: &'a Value, found: &mut Vec<(Kind, &'a str)>) {
    for (source, path) in POD_SECRETS {
        found.push((Kind::Secret, volume.get(*source).map_or("", |source| meta::string_at(source, path))));
    }
    found.push((Kind::ConfigMap, meta::string_at(volume, &["configMap", "name"])));
    found.push((Kind::Claim, meta::string_at(volume, &["persistentVolumeClaim", "claimName"])));
    for source in meta::list_at(volume, &["projected", "sources"]) {
        found.push((Kind::Secret, meta::string_at(source, &["secret", "name"])));
        found.push((Kind::ConfigMap, meta::string_at(source, &["configMap", "name"])));
    }
}

/// The resource claims of a pod: those that it names, and those that were made for it.
fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let made = meta::list_at(pod, &["status", "resourceClaimStatuses"]);
    let named = meta::list_at(&pod["spec"], &["resourceClaims"]).iter().map(move |claim| {
        match meta::string_at(claim, &["resourceClaimName"]) {
            "" => {
                let name = meta::string_at(claim, &["name"]);
                let made = made.iter().find(|status| meta::string_at(status, &["name"]) == name);
                made.map_or("", |status| meta::string_at(status, &["resourceClaimName"]))
            }
            name => name,
        }
    });
    let extended = meta::string_at(pod, &["status", "extendedResourceClaimStatus", "resourceClaimName"]);
    named.chain([extended])
}

/// What a persistent volume that is bound leads to: its claim, and the secrets that the kubelet mounts it with.
pub fn of_volume(volume: &Value) -> Option<(Object, Vec<Object>)> {
    let spec = &volume["spec"];
    let reference = spec.get("claimRef").filter(|reference| reference.is_object())?;
    let namespace = meta::string_at(reference, &["namespace"]);
    let claim = Object::new(Kind::Claim, namespace, meta::string_at(reference, &["name"]));
    let mut secrets = Vec::new();
    let mut secret = |own: &str, name: &str, like_claim: bool| {
        let namespace = if own.is_empty() && like_claim { namespace } else { own };
        if !name.is_empty() && !namespace.is_empty() {
            secrets.push(Object::new(Kind::Secret, namespace, name));
        }
    };
    if let Some(azure) = spec.get("azureFile") {
        secret(meta::string_at(azure, &["secretNamespace"]), meta::string_at(azure, &["secretName"]), true);
    }
    for (source, field, like_claim) in VOLUME_SECRETS {
        let Some(source) = spec.get(*source) else { continue };
        secret(meta::string_at(source, &[field, "namespace"]), meta::string_at(source, &[field, "name"]), *like_claim);
    }
    Some((claim, secrets))
}
