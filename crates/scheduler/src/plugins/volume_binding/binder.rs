//! Finds volumes for claims, assumes their binding, and has it done.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt, api::PostParams};
use tokio::sync::watch;

use super::{
    assume_cache::AssumeCache,
    error::{BindingFailure, VolumeBindingError},
    matching::{
        annotation, claim_class, find_matching_volume, has_access, is_bound_to, is_topology_allowed,
        is_volume_reachable, requested_storage, volume_class, volume_limit,
    },
};
use crate::{
    config::plugin_args::VolumeBindingArgs, handle::SchedulerHandle, views::node_info::NodeView,
    views::pod_info::PodInfo,
};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Index of volumes by storage class.
const VOLUMES_BY_CLASS: &str = "class";

/// The claims of a pod.
pub struct PodClaims {
    bound: Vec<Arc<PersistentVolumeClaim>>,
    /// Claims that wait for their first consumer, with the volumes of their class.
    unbound: Vec<Arc<PersistentVolumeClaim>>,
    volumes: HashMap<String, Vec<Arc<PersistentVolume>>>,
    /// Whether a claim is to be bound without waiting for a pod, and is not.
    pub has_unbound_immediate: bool,
}

/// Volumes that a pod's claims get on a node.
#[derive(Clone, Default)]
pub struct PodVolumes {
    bindings: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    provisions: Vec<Arc<PersistentVolumeClaim>>,
}

/// Binds volumes.
pub struct VolumeBinder {
    handle: Arc<SchedulerHandle>,
    claims: AssumeCache<PersistentVolumeClaim>,
    volumes: AssumeCache<PersistentVolume>,
    timeout: Duration,
    /// Counts changes of claims and volumes, to wake up what waits for them.
    changes: watch::Sender<u64>,
}

impl VolumeBinder {
    /// Creates a binder.
    pub fn new(args: &VolumeBindingArgs, handle: Arc<SchedulerHandle>) -> Self {
        let objects = &handle.objects;
        let (claims, volumes) = (objects.claims.clone(), objects.volumes.clone());
        volumes.add_index(VOLUMES_BY_CLASS, |volume| vec![volume_class(volume)]);
        let changes = watch::Sender::new(0);
        let (of_claims, of_volumes) = (changes.clone(), changes.clone());
        claims.add_event_handler(move |_| of_claims.send_modify(|count| *count += 1));
        volumes.add_event_handler(move |_| of_volumes.send_modify(|count| *count += 1));
        Self {
            claims: AssumeCache::new(claims),
            volumes: AssumeCache::new(volumes),
            timeout: Duration::from_secs(u64::try_from(args.bind_timeout_seconds).unwrap_or(0)),
            handle,
            changes,
        }
    }

    /// The claims with assumed versions.
    pub fn claims(&self) -> &AssumeCache<PersistentVolumeClaim> {
        &self.claims
    }

    /// Sorts the claims of a pod.
    pub fn claims_of(&self, pod: &PodInfo) -> Result<PodClaims, VolumeBindingError> {
        let mut claims =
            PodClaims { bound: Vec::new(), unbound: Vec::new(), volumes: HashMap::new(), has_unbound_immediate: false };
        let namespace = &pod.class.namespace;
        for name in pod.class.volumes.iter().filter_map(|volume| volume.claim_name(&pod.name)) {
            let claim = self.claims.get(namespace, &name);
            let claim = claim.ok_or_else(|| VolumeBindingError::ClaimUnknown(format!("{namespace}/{name}")))?;
            if is_fully_bound(&claim) {
                claims.bound.push(claim);
            } else if self.waits_for_consumer(&claim)? && volume_name(&claim).is_empty() {
                claims.unbound.push(claim);
            } else {
                claims.has_unbound_immediate = true;
            }
        }
        for claim in &claims.unbound {
            let class = claim_class(claim);
            claims.volumes.entry(class).or_insert_with_key(|class| {
                let volumes = self.volumes.informer().by_index(VOLUMES_BY_CLASS, class);
                volumes.into_iter().map(|volume| self.volumes.newest(volume)).collect()
            });
        }
        Ok(claims)
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> Result<bool, VolumeBindingError> {
        let name = claim_class(claim);
        let Some(class) = self.handle.objects.storage_classes.get("", &name).filter(|_| !name.is_empty()) else {
            return Ok(false);
        };
        match class.volume_binding_mode.as_deref() {
            Some(mode) => Ok(mode == "WaitForFirstConsumer"),
            None => Err(VolumeBindingError::NoBindingMode(name)),
        }
    }

    /// Returns what the claims get on a node, and why not, if they do not.
    pub fn find_volumes(
        &self,
        claims: &PodClaims,
        node: &NodeView,
    ) -> Result<(PodVolumes, Vec<&'static str>), VolumeBindingError> {
        let mut found = PodVolumes::default();
        let mut reasons = Vec::new();
        let mut bound_exist = true;
        for claim in &claims.bound {
            match self.volumes.get("", volume_name(claim)) {
                None => {
                    bound_exist = false;
                    break;
                }
                Some(volume) if !is_volume_reachable(&volume, node) => {
                    reasons.push("node(s) didn't match PersistentVolume's node affinity");
                    break;
                }
                Some(_) => {}
            }
        }
        let (is_satisfied, has_space) = self.find_unbound(claims, node, &mut found)?;
        if !is_satisfied {
            reasons.push("node(s) didn't find available persistent volumes to bind");
        }
        if !has_space {
            reasons.push("node(s) did not have enough free storage");
        }
        if !bound_exist {
            reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
        Ok((found, reasons))
    }

    /// Finds volumes for claims without one; returns whether all get one, and whether there is space for new ones.
    fn find_unbound(
        &self,
        claims: &PodClaims,
        node: &NodeView,
        found: &mut PodVolumes,
    ) -> Result<(bool, bool), VolumeBindingError> {
        let (mut to_match, mut to_provision) = (Vec::new(), Vec::new());
        for claim in &claims.unbound {
            match annotation(claim.metadata.annotations.as_ref(), SELECTED_NODE) {
                Some(selected) if **selected != *node.name => return Ok((false, true)),
                Some(_) => to_provision.push(claim.clone()),
                None => to_match.push(claim.clone()),
            }
        }
        to_match.sort_by_key(|claim| requested_storage(claim).map(|size| size.value()));
        for claim in to_match {
            let volumes = claims.volumes.get(&claim_class(&claim)).map_or(&[][..], Vec::as_slice);
            let is_chosen =
                |name: &str| found.bindings.iter().any(|(volume, _)| volume.metadata.name.as_deref() == Some(name));
            let matching = find_matching_volume(&claim, volumes.iter().map(AsRef::as_ref), node, is_chosen);
            let matching = matching.and_then(|matching| {
                volumes.iter().find(|volume| volume.metadata.name == matching.metadata.name).cloned()
            });
            match matching {
                Some(volume) => found.bindings.push((volume, claim)),
                None => to_provision.push(claim),
            }
        }
        for claim in &to_provision {
            let (is_possible, has_space) = self.can_provision(claim, node)?;
            if !is_possible || !has_space {
                return Ok((is_possible, has_space));
            }
        }
        found.provisions = to_provision;
        Ok((true, true))
    }

    fn can_provision(
        &self,
        claim: &PersistentVolumeClaim,
        node: &NodeView,
    ) -> Result<(bool, bool), VolumeBindingError> {
        let name = claim_class(claim);
        let Some(class) = self.handle.objects.storage_classes.get("", &name) else {
            return Err(match name.is_empty() {
                true => VolumeBindingError::NoClass(key(claim)),
                false => VolumeBindingError::ClassNotFound(name),
            });
        };
        let is_manual = class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER;
        if is_manual || !is_topology_allowed(class.allowed_topologies.as_ref(), &node.labels) {
            return Ok((false, true));
        }
        let Some(size) = requested_storage(claim) else { return Ok((true, true)) };
        let driver = self.handle.objects.csi_drivers.get("", &class.provisioner);
        if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
            return Ok((true, true));
        }
        let is_enough = |capacity: &Arc<k8s_openapi::api::storage::v1::CSIStorageCapacity>| {
            capacity.storage_class_name == name
                && volume_limit(capacity).is_some_and(|limit| limit.value() >= size.value())
                && has_access(capacity, &node.labels)
        };
        Ok((true, self.handle.objects.capacities.list().iter().any(is_enough)))
    }

    /// Assumes the bindings; returns whether there is nothing left to do.
    pub fn assume_volumes(&self, pod: &PodInfo, node: &str, volumes: &mut PodVolumes) -> bool {
        let names = pod.class.volumes.iter().filter_map(|volume| volume.claim_name(&pod.name));
        let is_bound =
            |name: String| self.claims.get(&pod.class.namespace, &name).is_some_and(|claim| is_fully_bound(&claim));
        let mut names = names;
        if names.all(is_bound) {
            return true;
        }
        for (volume, claim) in &mut volumes.bindings {
            if let Some(bound) = bound_volume(volume, claim) {
                *volume = Arc::new(bound);
                self.volumes.assume(volume.clone());
            }
        }
        for claim in &mut volumes.provisions {
            let mut selected = (**claim).clone();
            let annotations = selected.metadata.annotations.get_or_insert_default();
            annotations.insert(SELECTED_NODE.into(), node.into());
            *claim = Arc::new(selected);
            self.claims.assume(claim.clone());
        }
        false
    }

    /// Gives up assumed bindings.
    pub fn revert_volumes(&self, volumes: &PodVolumes) {
        volumes.bindings.iter().for_each(|(volume, _)| self.volumes.restore(volume));
        volumes.provisions.iter().for_each(|claim| self.claims.restore(claim));
    }

    /// Writes the bindings and waits until the controllers have completed them.
    pub async fn bind_volumes(
        &self,
        pod: &PodInfo,
        node: &str,
        mut volumes: PodVolumes,
    ) -> Result<(), VolumeBindingError> {
        let client = &self.handle.client;
        let api: Api<PersistentVolume> = Api::all(client.clone());
        for (volume, _) in &mut volumes.bindings {
            let written = api.replace(&volume.name_any(), &PostParams::default(), volume).await;
            *volume = Arc::new(written.map_err(VolumeBindingError::Write)?);
        }
        for claim in &mut volumes.provisions {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or("");
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            let written = api.replace(&claim.name_any(), &PostParams::default(), claim).await;
            *claim = Arc::new(written.map_err(VolumeBindingError::Write)?);
        }
        let mut changes = self.changes.subscribe();
        let completed = async {
            loop {
                changes.mark_unchanged();
                if self.is_completed(pod, node, &volumes)? {
                    return Ok(());
                }
                // The sender lives in `self`.
                let _ = changes.changed().await;
            }
        };
        let result = tokio::time::timeout(self.timeout, completed).await;
        Ok(result.unwrap_or(Err(BindingFailure::Timeout))?)
    }

    /// Whether all claims are bound, by the informers' versions.
    fn is_completed(&self, pod: &PodInfo, node_name: &str, volumes: &PodVolumes) -> Result<bool, BindingFailure> {
        let node = self.handle.nodes.get("", node_name);
        let node = node.ok_or_else(|| BindingFailure::NodeNotFound(node_name.into()))?;
        if self.handle.pods.get(&pod.class.namespace, &pod.name).is_none() {
            return Err(BindingFailure::PodNotFound(pod.name.to_string()));
        }
        let check_reachable = |volume: &PersistentVolume| match is_volume_reachable(volume, &node) {
            true => Ok(()),
            false => Err(BindingFailure::VolumeUnreachable { volume: volume.name_any(), node: node.name.to_string() }),
        };
        for (written, claim) in &volumes.bindings {
            let name = written.name_any();
            let volume = self.volumes.informer().get("", &name);
            let volume = volume.ok_or_else(|| BindingFailure::VolumeNotFound(name.clone()))?;
            let claim = self.current_claim(claim, "failed to check binding")?;
            if is_newer(written.as_ref(), volume.as_ref()) {
                return Ok(false);
            }
            check_reachable(&volume)?;
            let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            if reference.and_then(|reference| reference.uid.as_ref()).is_none_or(|uid| uid.is_empty()) {
                return Err(BindingFailure::ClaimRefReset(name));
            }
            if !is_fully_bound(&claim) {
                return Ok(false);
            }
        }
        for written in &volumes.provisions {
            let claim = self.current_claim(written, "failed to check provisioning pvc")?;
            if is_newer(written.as_ref(), claim.as_ref()) {
                return Ok(false);
            }
            let name = claim.name_any();
            match annotation(claim.metadata.annotations.as_ref(), SELECTED_NODE) {
                _ if claim.metadata.annotations.is_none() => {
                    return Err(BindingFailure::SelectedNodeReset(name));
                }
                Some(selected) if **selected == *node_name => {}
                _ => return Err(BindingFailure::Provisioning(name)),
            }
            if !volume_name(&claim).is_empty() {
                match self.volumes.informer().get("", volume_name(&claim)) {
                    None => return Ok(false),
                    Some(volume) => check_reachable(&volume)?,
                }
            }
            if !is_fully_bound(&claim) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn current_claim(
        &self,
        claim: &PersistentVolumeClaim,
        during: &'static str,
    ) -> Result<Arc<PersistentVolumeClaim>, BindingFailure> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or("");
        let current = self.claims.informer().get(namespace, &claim.name_any());
        current.ok_or_else(|| BindingFailure::ClaimNotFound { during, claim: key(claim) })
    }
}

fn key(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.metadata.namespace.as_deref().unwrap_or(""), claim.name_any())
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or("")
}

fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_name(claim).is_empty() && annotation(claim.metadata.annotations.as_ref(), BIND_COMPLETED).is_some()
}

/// Whether the informer has not seen what was written.
fn is_newer<K: ResourceExt>(written: &K, known: &K) -> bool {
    let version = |object: &K| object.resource_version().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    version(written) > version(known)
}

/// Returns the volume as bound to the claim; `None` if it is already.
fn bound_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let mut bound = volume.clone();
    let mut is_changed = false;
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_complete = reference.is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && reference.uid == claim.metadata.uid
    });
    if !is_complete {
        bound.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            resource_version: claim.metadata.resource_version.clone(),
            field_path: None,
        });
        is_changed = true;
    }
    if !is_bound_to(volume, claim) {
        let annotations: &mut BTreeMap<String, String> = bound.metadata.annotations.get_or_insert_default();
        if !annotations.contains_key(BOUND_BY_CONTROLLER) {
            annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
            is_changed = true;
        }
    }
    is_changed.then_some(bound)
}
