//! Resolves a volume of a pod to what it is made of: its own source, or that of the PersistentVolume behind its claim.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume,
};
use kube::Api;

use crate::pod_metadata::{pod_name, pod_namespace};

/// A claim could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The claim could not be read.
    #[error("failed to fetch PVC from API server: {0}")]
    Fetch(Box<kube::Error>),
    /// The claim is being deleted.
    #[error("can't start pod because PVC is being deleted")]
    BeingDeleted,
    /// An ephemeral volume's claim belongs to another object.
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwned {
        /// Namespace and name of the claim.
        claim: String,
        /// Namespace and name of the pod.
        pod: String,
    },
    /// The claim has no volume yet.
    #[error("PVC is not bound")]
    NotBound,
    /// The volume could not be read.
    #[error("failed to fetch PV {name} from API server: {source}")]
    FetchVolume {
        /// The volume's name.
        name: String,
        /// The client error.
        source: Box<kube::Error>,
    },
    /// The volume is bound to another claim.
    #[error("PV {name} is bound to a different claim")]
    OtherClaim {
        /// The volume's name.
        name: String,
    },
}

/// Source of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// Files that the kubelet writes: configMap, secret, downwardAPI, projected.
    Content,
    /// A directory of the pod's own.
    EmptyDir(EmptyDirVolumeSource),
    /// A path of the node.
    HostPath(HostPathVolumeSource),
    /// A directory or block device of the node that a PersistentVolume names.
    Local {
        /// The path on the node.
        path: String,
    },
    /// An NFS export.
    Nfs {
        /// The server.
        server: String,
        /// The exported path.
        path: String,
        /// Mount options.
        options: Vec<String>,
    },
    /// The content of an image, mounted by the container runtime.
    Image(ImageVolumeSource),
    /// A source that this kubelet does not support: its field name.
    Unsupported(String),
}

/// A volume whose claim, if any, is resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedVolume {
    /// Its source.
    pub source: VolumeSource,
    /// Name of the directory below the plug-in's: that of the PersistentVolume, or of the pod's volume.
    pub directory: String,
    /// Whether nothing may be written to it.
    pub read_only: bool,
    /// Whether containers use it as a block device.
    pub is_block: bool,
}

impl ResolvedVolume {
    /// Whether the volume's files are given to the pod's `fsGroup`.
    pub fn supports_fs_group(&self) -> bool {
        matches!(self.source, VolumeSource::Local { .. }) && !self.read_only && !self.is_block
    }
}

/// Returns the claim's name of a volume that has one.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
    claim.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod_name(pod), volume.name)))
}

/// Resolves a volume. Claims and volumes are read from the API server.
pub async fn resolve_volume(client: &kube::Client, pod: &Pod, volume: &Volume) -> Result<ResolvedVolume, ClaimError> {
    let Some(name) = claim_name(pod, volume) else {
        let source = inline_source(volume);
        return Ok(ResolvedVolume { source, directory: volume.name.clone(), read_only: false, is_block: false });
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), pod_namespace(pod));
    let claim = claims.get(&name).await.map_err(|error| ClaimError::Fetch(Box::new(error)))?;
    if volume.ephemeral.is_some() {
        check_owner(pod, &claim)?;
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ClaimError::BeingDeleted);
    }
    let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| bound && !name.is_empty());
    let name = name.ok_or(ClaimError::NotBound)?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get(&name).await;
    let found = found.map_err(|error| ClaimError::FetchVolume { name: name.clone(), source: Box::new(error) })?;
    let spec = found.spec.unwrap_or_default();
    if spec.claim_ref.as_ref().is_none_or(|reference| reference.uid != claim.metadata.uid) {
        return Err(ClaimError::OtherClaim { name });
    }
    let read_only = volume.persistent_volume_claim.as_ref().is_some_and(|source| source.read_only == Some(true));
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    Ok(ResolvedVolume { source: persistent_source(&spec), directory: name, read_only, is_block })
}

fn check_owner(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), ClaimError> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        return Ok(());
    }
    let namespace = pod_namespace(pod);
    let claim = format!("{namespace}/{}", claim.metadata.name.as_deref().unwrap_or_default());
    Err(ClaimError::NotOwned { claim, pod: format!("{namespace}/{}", pod_name(pod)) })
}

/// Returns the source of a volume without a claim.
fn inline_source(volume: &Volume) -> VolumeSource {
    match volume {
        Volume { config_map: Some(_), .. }
        | Volume { secret: Some(_), .. }
        | Volume { downward_api: Some(_), .. }
        | Volume { projected: Some(_), .. } => VolumeSource::Content,
        Volume { host_path: Some(source), .. } => VolumeSource::HostPath(source.clone()),
        Volume { empty_dir: Some(source), .. } => VolumeSource::EmptyDir(source.clone()),
        Volume { image: Some(source), .. } => VolumeSource::Image(source.clone()),
        Volume { nfs: Some(source), .. } => VolumeSource::Nfs {
            server: source.server.clone(),
            path: source.path.clone(),
            options: if source.read_only == Some(true) { vec!["ro".into()] } else { Vec::new() },
        },
        other => match other_source_name(other) {
            Some(name) => VolumeSource::Unsupported(name),
            // The API server defaults a volume without a source to an emptyDir.
            None => VolumeSource::EmptyDir(EmptyDirVolumeSource::default()),
        },
    }
}

fn persistent_source(spec: &k8s_openapi::api::core::v1::PersistentVolumeSpec) -> VolumeSource {
    if let Some(source) = &spec.host_path {
        return VolumeSource::HostPath(source.clone());
    }
    if let Some(source) = &spec.local {
        return VolumeSource::Local { path: source.path.clone() };
    }
    if let Some(source) = &spec.nfs {
        let mut options = spec.mount_options.clone().unwrap_or_default();
        if source.read_only == Some(true) {
            options.push("ro".into());
        }
        return VolumeSource::Nfs { server: source.server.clone(), path: source.path.clone(), options };
    }
    VolumeSource::Unsupported(other_source_name(spec).unwrap_or_else(|| "unknown".into()))
}

/// Returns the field name of a source that the kubelet does not know.
fn other_source_name<T: serde::Serialize>(owner: &T) -> Option<String> {
    const OTHER_FIELDS: [&str; 9] = [
        "name",
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
    ];
    let fields = serde_json::to_value(owner).unwrap_or_default();
    fields.as_object()?.keys().find(|key| !OTHER_FIELDS.contains(&key.as_str())).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn client_with(claim: Value, volume: Value) -> kube::Client {
        let respond = move |request: http::Request<kube::client::Body>| {
            let body = if request.uri().path().contains("persistentvolumeclaims") { &claim } else { &volume };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            async move { Ok::<_, tower::BoxError>(http::Response::new(body)) }
        };
        client::transport::in_process_client(tower::service_fn(respond), "test")
    }

    async fn check(claim: Value, volume: Value, expected: Result<VolumeSource, &str>) {
        let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "pod" } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let source = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
        let source: Volume = serde_json::from_value(source).unwrap();
        let resolved = resolve_volume(&client_with(claim, volume), &pod, &source).await;
        match (resolved, expected) {
            (Ok(resolved), Ok(expected)) => {
                assert_eq!((resolved.source, resolved.directory.as_str()), (expected, "pv"))
            }
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (resolved, expected) => panic!("{resolved:?} instead of {expected:?}"),
        }
    }

    #[tokio::test]
    async fn claims_lead_to_their_volumes() {
        let claim = |phase: &str| json!({ "metadata": { "name": "c", "uid": "1" }, "spec": { "volumeName": "pv" }, "status": { "phase": phase } });
        let volume = |uid: &str, source: Value| {
            let mut spec = json!({ "claimRef": { "uid": uid }, "storageClassName": "s" });
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            json!({ "metadata": { "name": "pv" }, "spec": spec })
        };
        let local = json!({ "local": { "path": "/disk" } });
        let source = VolumeSource::Local { path: "/disk".into() };
        check(claim("Bound"), volume("1", local.clone()), Ok(source)).await;
        check(claim("Pending"), volume("1", local.clone()), Err("PVC is not bound")).await;
        check(claim("Bound"), volume("2", local), Err("PV pv is bound to a different claim")).await;
        let iscsi = json!({ "iscsi": { "iqn": "q", "lun": 0, "targetPortal": "t" } });
        check(claim("Bound"), volume("1", iscsi), Ok(VolumeSource::Unsupported("iscsi".into()))).await;
    }
}
