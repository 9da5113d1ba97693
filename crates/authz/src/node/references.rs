//! The objects that pods and persistent volumes refer to.

use api::{Value, meta};

use super::vertex::{Vertex, VertexKind};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Pod volume sources with Secret references, and their field paths.
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
/// Persistent volume sources with Secret references for the kubelet, their field, and whether the namespace defaults to
/// that of the claim.
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

/// Returns the objects that a pod refers to.
pub fn pod_references(pod: &Value) -> Vec<Vertex> {
    let spec = &pod["spec"];
    // Nodes create their own mirror pods, which must not grant access.
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Vec::new();
    }
    let mut found: Vec<(VertexKind, &str)> =
        vec![(VertexKind::ServiceAccount, meta::string_at(spec, &["serviceAccountName"]))];
    let secrets = meta::list_at(spec, &["imagePullSecrets"]).iter();
    found.extend(secrets.map(|secret| (VertexKind::Secret, meta::string_at(secret, &["name"]))));
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        meta::list_at(spec, &[list]).iter().for_each(|container| add_container_references(container, &mut found));
    }
    meta::list_at(spec, &["volumes"]).iter().for_each(|volume| add_volume_references(volume, &mut found));
    found.extend(resource_claims(pod).map(|name| (VertexKind::ResourceClaim, name)));
    let namespace = meta::namespace(pod);
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    let mut objects: Vec<Vertex> = named.map(|(kind, name)| Vertex::new(kind, namespace, name)).collect();
    for volume in meta::list_at(spec, &["volumes"]).iter().filter(|volume| volume.get("ephemeral").is_some()) {
        let claim = format!("{}-{}", meta::name(pod), meta::string_at(volume, &["name"]));
        objects.push(Vertex::new(VertexKind::Claim, namespace, &claim));
    }
    objects
}

fn add_container_references<'a>(container: &'a Value, found: &mut Vec<(VertexKind, &'a str)>) {
    for source in meta::list_at(container, &["envFrom"]) {
        found.push((VertexKind::Secret, meta::string_at(source, &["secretRef", "name"])));
        found.push((VertexKind::ConfigMap, meta::string_at(source, &["configMapRef", "name"])));
    }
    for variable in meta::list_at(container, &["env"]) {
        found.push((VertexKind::Secret, meta::string_at(variable, &["valueFrom", "secretKeyRef", "name"])));
        found.push((VertexKind::ConfigMap, meta::string_at(variable, &["valueFrom", "configMapKeyRef", "name"])));
    }
}

fn add_volume_references<'a>(volume: &'a Value, found: &mut Vec<(VertexKind, &'a str)>) {
    for (source, path) in POD_SECRETS {
        found.push((VertexKind::Secret, volume.get(*source).map_or("", |source| meta::string_at(source, path))));
    }
    found.push((VertexKind::ConfigMap, meta::string_at(volume, &["configMap", "name"])));
    found.push((VertexKind::Claim, meta::string_at(volume, &["persistentVolumeClaim", "claimName"])));
    for source in meta::list_at(volume, &["projected", "sources"]) {
        found.push((VertexKind::Secret, meta::string_at(source, &["secret", "name"])));
        found.push((VertexKind::ConfigMap, meta::string_at(source, &["configMap", "name"])));
    }
}

/// Returns the names of a pod's resource claims, given or generated.
fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
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

/// Returns the claim and the Secrets of a bound persistent volume.
pub fn volume_references(volume: &Value) -> Option<(Vertex, Vec<Vertex>)> {
    let spec = &volume["spec"];
    let reference = spec.get("claimRef").filter(|reference| reference.is_object())?;
    let namespace = meta::string_at(reference, &["namespace"]);
    let claim = Vertex::new(VertexKind::Claim, namespace, meta::string_at(reference, &["name"]));
    let mut secrets = Vec::new();
    let mut secret = |own: &str, name: &str, like_claim: bool| {
        let namespace = if own.is_empty() && like_claim { namespace } else { own };
        if !name.is_empty() && !namespace.is_empty() {
            secrets.push(Vertex::new(VertexKind::Secret, namespace, name));
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
