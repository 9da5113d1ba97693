//! Attaches CSI volumes to the nodes of the pods that use them, and detaches them afterwards.
//!
//! The key is a node. A sync compares the volumes that its pods need with its VolumeAttachments: missing ones are
//! created, surplus ones deleted once the kubelet has unmounted the volume. VolumeAttachments that others made are left
//! alone: those of this controller are known by their names. `Node.status.volumesAttached` is written
//! before a volume is detached and after it was attached, so that the kubelet mounts only attached volumes.

mod in_tree_volume;
mod state;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, SharedInformer, WorkQueue};
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
        storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    node_readiness::is_node_ready,
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_claims::{PODS_BY_CLAIM, claim_ref_key, index_pods_by_claim, pod_claim_names},
    pod_node::{assigned_node, index_pods_by_node, pods_on_node},
    pod_view::PodView,
};
use state::{CsiVolume, DesiredVolume, DesiredVolumes};

/// Index of VolumeAttachments by node.
const ATTACHMENTS_BY_NODE: &str = "node";
/// Index of VolumeAttachments by PersistentVolume.
const ATTACHMENTS_BY_VOLUME: &str = "volume";
/// Time that an unhealthy node has to unmount a volume before it is detached by force.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(6 * 60);

struct AttachDetachController {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodView>,
    nodes: SharedInformer<Node>,
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    drivers: SharedInformer<CSIDriver>,
    attachments: SharedInformer<VolumeAttachment>,
    /// When the detachment of a VolumeAttachment was first wanted.
    detach_requests: Mutex<HashMap<String, Instant>>,
    disable_force_detach: bool,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| AttachDetachController {
        recorder: EventRecorder::new(context.client.clone(), "attachdetach-controller", None),
        pods: context.informers.informer_for(),
        nodes: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        volumes: context.informers.informer_for(),
        drivers: context.informers.informer_for(),
        attachments: context.informers.informer_for(),
        client: context.client.clone(),
        detach_requests: Mutex::default(),
        disable_force_detach: context.options.volumes.disable_force_detach,
    };
    run_controller(&context, build).await;
}

impl Controller for AttachDetachController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_claim(&self.pods);
        index_pods_by_node(&self.pods);
        self.attachments.add_index(ATTACHMENTS_BY_NODE, |attachment| vec![attachment.spec.node_name.clone()]);
        self.attachments.add_index(ATTACHMENTS_BY_VOLUME, |attachment| {
            attachment.spec.source.persistent_volume_name.iter().cloned().collect()
        });
        watches.add(&self.pods, |_, event, queue| {
            let pod = event.object();
            if pod_claim_names(pod).next().is_some() {
                assigned_node(pod).into_iter().for_each(|node| queue.add(node.to_owned()));
            }
        });
        watches.add(&self.nodes, |this, event, queue| {
            let name = event.object().name_any();
            if !this.attachments.by_index(ATTACHMENTS_BY_NODE, &name).is_empty() {
                queue.add(name);
            }
        });
        watches.add(&self.claims, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref()).to_string();
            this.enqueue_nodes_of_claim(queue, &key);
        });
        watches.add(&self.attachments, |this, event, queue| {
            let attachment = event.object();
            queue.add(attachment.spec.node_name.clone());
            // A volume that is detached may be attached to another node.
            let volume = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
            let claim = this.volumes.get("", volume).and_then(|volume| claim_ref_key(&volume));
            claim.into_iter().for_each(|claim| this.enqueue_nodes_of_claim(queue, &claim.to_string()));
        });
        watches.require_cache(&self.volumes);
        watches.require_cache(&self.drivers);
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        let (node, desired) = (self.nodes.get("", name), self.desired_volumes(name));
        let attachments = self.attachments.by_index(ATTACHMENTS_BY_NODE, name);
        let is_surplus = |name: &str| state::is_attachment_name(name) && !desired.contains_key(name);
        let surplus: Vec<_> = attachments.iter().filter(|found| is_surplus(&found.name_any())).collect();
        let (detachable, wait) = self.detachable(node.as_deref(), &surplus);
        self.forget_detach_requests(&desired);

        // The kubelet learns that a volume is going before it is detached.
        self.report_attached(node.as_deref(), &attachments, &desired, &detachable).await?;
        for attachment in detachable {
            self.detach(attachment).await?;
        }
        for (attachment_name, volume) in &desired {
            match attachments.iter().find(|attachment| &attachment.name_any() == attachment_name) {
                Some(attachment) => self.record_attach_error(attachment, volume),
                None => self.attach(name, attachment_name, volume).await?,
            }
        }
        Ok(wait.map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }
}

impl AttachDetachController {
    fn enqueue_nodes_of_claim(&self, queue: &WorkQueue<String>, claim: &str) {
        for pod in self.pods.by_index(PODS_BY_CLAIM, claim) {
            assigned_node(&pod).into_iter().for_each(|node| queue.add(node.to_owned()));
        }
    }

    /// Returns the attachable volumes of the pods on a node that have not ended.
    fn desired_volumes(&self, node: &str) -> DesiredVolumes {
        let mut desired = DesiredVolumes::new();
        let mut pods = pods_on_node(&self.pods, node);
        pods.retain(|pod| !is_pod_terminal(pod));
        pods.sort_by_key(|pod| pod.name_any());
        for pod in pods {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            for claim in pod_claim_names(&pod).map(|name| ObjectKey::new(&namespace, &name)) {
                let Some((csi, volume)) = self.attachable_volume(&claim) else { continue };
                let entry = desired.entry(csi.attachment_name(node));
                entry.or_insert_with(|| DesiredVolume { csi, volume, pods: Vec::new() }).pods.push(pod.clone());
            }
        }
        desired
    }

    /// Returns the volume that a claim is bound to, if its CSI driver attaches volumes.
    fn attachable_volume(&self, claim: &ObjectKey) -> Option<(CsiVolume, Arc<PersistentVolume>)> {
        let claim = self.claims.get(&claim.namespace, &claim.name)?;
        let is_bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
        let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|_| is_bound)?;
        let volume = self.volumes.get("", name)?;
        let csi = CsiVolume::from_volume(&volume)?;
        let driver = self.drivers.get("", &csi.driver);
        let attaches = driver.and_then(|driver| driver.spec.attach_required).unwrap_or(true);
        attaches.then_some((csi, volume))
    }

    /// Returns the surplus attachments that may be detached now, and the time until one more may be by force.
    fn detachable<'a>(
        &self,
        node: Option<&Node>,
        surplus: &[&'a Arc<VolumeAttachment>],
    ) -> (Vec<&'a Arc<VolumeAttachment>>, Option<Duration>) {
        let mut requests = self.detach_requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut detachable, mut wait) = (Vec::new(), None::<Duration>);
        for attachment in surplus {
            let waited = requests.entry(attachment.name_any()).or_insert_with(Instant::now).elapsed();
            let is_mounted = match (node, self.csi_volume(node, attachment)) {
                (Some(node), Some(csi)) => state::is_in_use(node, &csi.unique_name()),
                (Some(_), None) => false,
                (None, _) => true,
            };
            let is_forced =
                !node.is_some_and(is_node_ready) && !self.disable_force_detach && waited >= MAX_WAIT_FOR_UNMOUNT;
            if !is_mounted || is_forced || node.is_some_and(state::is_out_of_service) {
                detachable.push(*attachment);
            } else {
                let left = MAX_WAIT_FOR_UNMOUNT.saturating_sub(waited).max(Duration::from_secs(1));
                wait = Some(wait.map_or(left, |other| other.min(left)));
            }
        }
        (detachable, wait)
    }

    fn forget_detach_requests(&self, desired: &DesiredVolumes) {
        let mut requests = self.detach_requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.retain(|name, _| !desired.contains_key(name) && self.attachments.get("", name).is_some());
    }

    /// Returns the CSI volume of an attachment: that of its PersistentVolume, or of the node's list if that is gone.
    fn csi_volume(&self, node: Option<&Node>, attachment: &VolumeAttachment) -> Option<CsiVolume> {
        let volume = attachment.spec.source.persistent_volume_name.as_deref();
        if let Some(volume) = volume.and_then(|name| self.volumes.get("", name)) {
            return CsiVolume::from_volume(&volume);
        }
        let attached = node?.status.as_ref()?.volumes_attached.as_deref()?;
        let volumes = attached.iter().filter_map(|attached| CsiVolume::from_unique_name(&attached.name));
        let mut volumes =
            volumes.filter(|csi| csi.attachment_name(&attachment.spec.node_name) == attachment.name_any());
        volumes.next()
    }

    /// Writes `Node.status.volumesAttached`, and records the volumes that are new in it.
    async fn report_attached(
        &self,
        node: Option<&Node>,
        attachments: &[Arc<VolumeAttachment>],
        desired: &DesiredVolumes,
        detachable: &[&Arc<VolumeAttachment>],
    ) -> Result<(), kube::Error> {
        let Some(node) = node else { return Ok(()) };
        let kept = attachments.iter().filter(|attachment| {
            state::is_attached(attachment) && !detachable.iter().any(|going| Arc::ptr_eq(going, attachment))
        });
        let names = kept.filter_map(|attachment| self.csi_volume(Some(node), attachment)).map(|csi| csi.unique_name());
        let wanted = state::attached_volumes(names);
        let current = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
        let mut sorted = current.clone();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        if sorted == wanted {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let list = if wanted.is_empty() { json!(null) } else { json!(wanted) };
        let patch = Patch::Merge(json!({"status": {"volumesAttached": list}}));
        match api.patch_status(&node.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if error.is_not_found() => return Ok(()),
            patched => patched.map(drop)?,
        }
        for volume in desired.values() {
            let name = volume.csi.unique_name();
            let has = |list: &[k8s_openapi::api::core::v1::AttachedVolume]| list.iter().any(|entry| entry.name == name);
            if has(&wanted) && !has(&current) {
                let message = format!("AttachVolume.Attach succeeded for volume {:?} ", volume.volume.name_any());
                for pod in &volume.pods {
                    self.recorder.record_normal(pod.object_ref(&()), "SuccessfulAttachVolume", message.clone());
                }
            }
        }
        Ok(())
    }

    async fn attach(&self, node: &str, name: &str, desired: &DesiredVolume) -> Result<(), kube::Error> {
        let volume = desired.volume.name_any();
        let elsewhere = self.attachments.by_index(ATTACHMENTS_BY_VOLUME, &volume);
        if !state::allows_multi_attach(&desired.volume) && !elsewhere.is_empty() {
            self.record_multi_attach(desired, &elsewhere);
            return Ok(());
        }
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            spec: VolumeAttachmentSpec {
                attacher: desired.csi.driver.clone(),
                node_name: node.to_owned(),
                source: VolumeAttachmentSource { persistent_volume_name: Some(volume), inline_volume_spec: None },
            },
            status: None,
        };
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &attachment).await {
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    }

    async fn detach(&self, attachment: &VolumeAttachment) -> Result<(), kube::Error> {
        if attachment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        match api.delete(&attachment.name_any(), &DeleteParams::default()).await {
            Err(error) if error.is_not_found() => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    fn record_multi_attach(&self, desired: &DesiredVolume, elsewhere: &[Arc<VolumeAttachment>]) {
        let claim = claim_ref_key(&desired.volume).map(|claim| claim.to_string()).unwrap_or_default();
        let is_elsewhere = |pod: &PodView| {
            let node = assigned_node(pod);
            elsewhere.iter().any(|attachment| Some(attachment.spec.node_name.as_str()) == node) && !is_pod_terminal(pod)
        };
        let mut users = self.pods.by_index(PODS_BY_CLAIM, &claim);
        users.retain(|pod| is_elsewhere(pod));
        for pod in &desired.pods {
            let message = state::multi_attach_message(&desired.volume.name_any(), pod, &users);
            self.recorder.record_warning(pod.object_ref(&()), "FailedAttachVolume", message);
        }
    }

    fn record_attach_error(&self, attachment: &VolumeAttachment, desired: &DesiredVolume) {
        let Some(status) = attachment.status.as_ref().filter(|status| !status.attached) else { return };
        let Some(error) = status.attach_error.as_ref().and_then(|error| error.message.as_deref()) else { return };
        let message = format!("AttachVolume.Attach failed for volume {:?} : {error}", desired.volume.name_any());
        for pod in &desired.pods {
            self.recorder.record_warning(pod.object_ref(&()), "FailedAttachVolume", message.clone());
        }
    }
}
