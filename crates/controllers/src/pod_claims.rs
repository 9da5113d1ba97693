//! The claims that pods use and volumes are bound to.

use client::SharedInformer;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;

use crate::{object_key::ObjectKey, pod_view::PodView};

/// Index of pods by the claims that they use; see [`index_pods_by_claim`].
pub(crate) const PODS_BY_CLAIM: &str = "claim";

/// Adds the index of pods by the claims that they use.
pub(crate) fn index_pods_by_claim(pods: &SharedInformer<PodView>) {
    pods.add_index(PODS_BY_CLAIM, |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        pod_claim_names(pod).map(|name| ObjectKey::new(namespace, &name).to_string()).collect()
    });
}

/// Names of the claims that a pod uses, those of ephemeral volumes included.
pub(crate) fn pod_claim_names(pod: &PodView) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    })
}

/// The key of the claim that a volume is bound to or reserved for.
pub(crate) fn claim_ref_key(volume: &PersistentVolume) -> Option<ObjectKey> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::new(claim.namespace.as_deref().unwrap_or(""), claim.name.as_deref().unwrap_or("")))
}
