//! ResourceClaims: created from the templates of pods, reserved for pods that were bound without the scheduler, released
//! and deallocated when their pods are done.

mod claims;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::PodResourceClaim,
    resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_node::assigned_node,
    pod_resource_claims::{PodClaim, check_owner, owning_pod, pod_entries},
    pod_view::PodView,
};
use claims::{FINALIZER, POD_CLAIM_NAME};

/// Index of pods by the claims that they use.
const PODS_BY_RESOURCE_CLAIM: &str = "resourceClaim";
/// Index of pods by the templates of their claims.
const PODS_BY_TEMPLATE: &str = "resourceClaimTemplate";
/// Index of claims by the uid of the pod that owns them.
const CLAIMS_BY_POD: &str = "podOwner";
/// Field manager of `pod.status.resourceClaimStatuses`.
const FIELD_MANAGER: &str = "ResourceClaimController";

/// A queued pod or claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ResourceClaimKey {
    Pod(ObjectKey),
    Claim(ObjectKey),
}

struct ResourceClaimController {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodView>,
    claims: SharedInformer<ResourceClaim>,
    templates: SharedInformer<ResourceClaimTemplate>,
    /// Names of created claims by pod uid and entry, which the cache may not have yet.
    created: Mutex<HashMap<(String, String), String>>,
}

/// A sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceClaimError {
    #[error("PodResourceClaim {entry}: {reason}")]
    PodClaim { entry: String, reason: String },
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| ResourceClaimController {
        recorder: EventRecorder::new(context.client.clone(), "resource_claim", None),
        pods: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        templates: context.informers.informer_for(),
        client: context.client.clone(),
        created: Mutex::default(),
    };
    run_controller(&context, build).await;
}

impl Controller for ResourceClaimController {
    type Key = ResourceClaimKey;
    type Error = ResourceClaimError;
    const WORKERS: usize = 50;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.pods.add_index(PODS_BY_RESOURCE_CLAIM, |pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
            claims::pod_claim_names(pod).map(|name| ObjectKey::new(namespace, name).to_string()).collect()
        });
        self.pods.add_index(PODS_BY_TEMPLATE, |pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
            let templates = pod_entries(pod).iter().filter_map(|entry| entry.resource_claim_template_name.as_ref());
            templates.map(|name| ObjectKey::new(namespace, name).to_string()).collect()
        });
        self.claims
            .add_index(CLAIMS_BY_POD, |claim| owning_pod(claim).map(|owner| owner.uid.clone()).into_iter().collect());
        watches.add(&self.pods, |this, event, queue| {
            let is_deleted = matches!(event, ResourceEvent::Deleted(_));
            if is_deleted {
                let uid = event.object().metadata.uid.clone().unwrap_or_default();
                this.lock_created().retain(|(pod, _), _| *pod != uid);
            }
            enqueue_pod(queue, event.object(), is_deleted);
        });
        watches.add(&self.claims, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref());
            let pods = this.pods.by_index(PODS_BY_RESOURCE_CLAIM, &key.to_string());
            pods.iter().for_each(|pod| enqueue_pod(queue, pod, false));
            if !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(ResourceClaimKey::Claim(key));
            }
        });
        watches.add(&self.templates, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref()).to_string();
            this.pods.by_index(PODS_BY_TEMPLATE, &key).iter().for_each(|pod| enqueue_pod(queue, pod, false));
        });
    }

    async fn sync(&self, key: &ResourceClaimKey) -> Result<RequeueAction, ResourceClaimError> {
        match key {
            ResourceClaimKey::Pod(key) => match self.pods.get(&key.namespace, &key.name) {
                Some(pod) if pod.metadata.deletion_timestamp.is_none() => self.sync_pod(&pod).await?,
                _ => {}
            },
            ResourceClaimKey::Claim(key) => {
                if let Some(claim) = self.claims.get(&key.namespace, &key.name) {
                    self.sync_claim(&claim).await?;
                }
            }
        }
        Ok(RequeueAction::AwaitChange)
    }
}

impl ResourceClaimController {
    fn lock_created(&self) -> MutexGuard<'_, HashMap<(String, String), String>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sync_pod(&self, pod: &PodView) -> Result<(), ResourceClaimError> {
        let namespace = pod.namespace().unwrap_or_default();
        let mut generated = Vec::new();
        for entry in pod_entries(pod) {
            match self.ensure_claim(pod, entry).await {
                Ok(Some(name)) => generated.push(json!({"name": entry.name, "resourceClaimName": name})),
                Ok(None) => {}
                Err(reason) => {
                    let error = ResourceClaimError::PodClaim { entry: entry.name.clone(), reason };
                    self.recorder.record_warning(pod.object_ref(&()), "FailedResourceClaimCreation", error.to_string());
                    return Err(error);
                }
            }
        }
        if !generated.is_empty() {
            let status = json!({"apiVersion": "v1", "kind": "Pod", "status": {"resourceClaimStatuses": generated}});
            let pods: Api<PodView> = Api::namespaced(self.client.clone(), &namespace);
            pods.patch_status(&pod.name_any(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(status))
                .await?;
        }
        if assigned_node(pod).is_some() { self.reserve_claims(pod).await } else { Ok(()) }
    }

    /// Creates the claim of a pod's entry if it is missing; returns its name if the pod's status lacks it.
    async fn ensure_claim(&self, pod: &PodView, entry: &PodResourceClaim) -> Result<Option<String>, String> {
        let namespace = pod.namespace().unwrap_or_default();
        match PodClaim::from_pod(pod, entry) {
            PodClaim::NotNeeded | PodClaim::Named(_) => return Ok(None),
            PodClaim::Generated(name) => {
                // A generated claim that was deleted or replaced is created again.
                if self.claims.get(&namespace, name).is_some_and(|claim| check_owner(pod, &claim).is_ok()) {
                    return Ok(None);
                }
            }
            PodClaim::Missing => {}
        }
        let Some(template_name) = &entry.resource_claim_template_name else { return Ok(None) };
        let created_key = (pod.metadata.uid.clone().unwrap_or_default(), entry.name.clone());
        let cached = self.claims.by_index(CLAIMS_BY_POD, &created_key.0);
        let orphan = cached.iter().find(|claim| claim.annotations().get(POD_CLAIM_NAME) == Some(&entry.name));
        if let Some(claim) = orphan {
            return Ok(Some(claim.name_any()));
        }
        let remembered = self.lock_created().remove(&created_key);
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        if let Some(name) = remembered
            && api.get_opt(&name).await.is_ok_and(|claim| claim.is_some())
        {
            return Ok(Some(name));
        }
        let Some(template) = self.templates.get(&namespace, template_name) else {
            return Err(format!(
                "resource claim template {template_name:?}: resourceclaimtemplate.resource.k8s.io {template_name:?} not found"
            ));
        };
        let claim = claims::new_claim(pod, &entry.name, &template);
        let created = api.create(&PostParams::default(), &claim).await;
        let created = created.map_err(|error| format!("create ResourceClaim : {}", error.server_message()))?;
        self.lock_created().insert(created_key, created.name_any());
        Ok(Some(created.name_any()))
    }

    /// Reserves the allocated claims of a pod that was bound without the scheduler.
    async fn reserve_claims(&self, pod: &PodView) -> Result<(), ResourceClaimError> {
        let namespace = pod.namespace().unwrap_or_default();
        for entry in pod_entries(pod) {
            let pod_claim = PodClaim::from_pod(pod, entry);
            let Some(name) = pod_claim.name() else { continue };
            let Some(claim) = self.claims.get(&namespace, name) else { return Ok(()) };
            if matches!(pod_claim, PodClaim::Generated(_)) {
                let check = check_owner(pod, &claim);
                check.map_err(|error| ResourceClaimError::PodClaim {
                    entry: entry.name.clone(),
                    reason: error.to_string(),
                })?;
            }
            if claims::needs_reservation(pod, &claim) {
                let consumer = ResourceClaimConsumerReference {
                    api_group: None,
                    resource: "pods".into(),
                    name: pod.name_any(),
                    uid: pod.metadata.uid.clone().unwrap_or_default(),
                };
                let mut changed = (*claim).clone();
                changed.status.get_or_insert_default().reserved_for.get_or_insert_default().push(consumer);
                self.update_status(&changed).await?;
            }
        }
        Ok(())
    }

    /// Removes reservations of pods that are done; deallocates a claim without any, and deletes it if it was generated.
    async fn sync_claim(&self, claim: &ResourceClaim) -> Result<(), ResourceClaimError> {
        let namespace = claim.namespace().unwrap_or_default();
        let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
        let mut remaining = Vec::with_capacity(reserved.len());
        for consumer in &reserved {
            if self.check_reservation(&namespace, consumer).await? {
                remaining.push(consumer.clone());
            }
        }
        let is_unused = remaining.is_empty();
        let has_finalizer = claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        let is_released = remaining.len() < reserved.len();
        if is_released || (has_finalizer && claim.metadata.deletion_timestamp.is_some() && is_unused) {
            self.release_claim(claim, remaining, is_released).await?;
        }
        if is_unused { self.delete_unused(&namespace, claim).await } else { Ok(()) }
    }

    async fn check_reservation(
        &self,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
    ) -> Result<bool, kube::Error> {
        // Other consumers are unknown here; their reservations are theirs to remove.
        if !consumer.api_group.as_deref().unwrap_or("").is_empty() || consumer.resource != "pods" {
            return Ok(true);
        }
        if let Some(pod) = self.pods.get(namespace, &consumer.name) {
            return Ok(pod.metadata.uid.as_ref() == Some(&consumer.uid) && !claims::is_pod_done(&pod));
        }
        // The cache may not have the pod yet.
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(&consumer.name).await?;
        Ok(pod.is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&consumer.uid)))
    }

    async fn release_claim(
        &self,
        claim: &ResourceClaim,
        remaining: Vec<ResourceClaimConsumerReference>,
        is_released: bool,
    ) -> Result<(), kube::Error> {
        let mut changed = claim.clone();
        let has_finalizer = changed.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        let status = changed.status.get_or_insert_default();
        let is_allocated = status.allocation.is_some();
        if remaining.is_empty() && has_finalizer {
            status.allocation = None;
        }
        status.reserved_for = Some(remaining).filter(|remaining| !remaining.is_empty());
        if is_released || is_allocated {
            changed = self.update_status(&changed).await?;
        }
        let is_deallocated = changed.status.as_ref().is_none_or(|status| status.allocation.is_none());
        if has_finalizer && is_deallocated {
            changed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
            api.replace(&claim.name_any(), &PostParams::default(), &changed).await?;
        }
        Ok(())
    }

    /// Deletes a generated claim whose pod will not run.
    async fn delete_unused(&self, namespace: &str, claim: &ResourceClaim) -> Result<(), ResourceClaimError> {
        let Some(owner) = owning_pod(claim) else { return Ok(()) };
        // A pod that is not cached may be new; the garbage collector deletes claims of pods that are gone.
        let Some(pod) = self.pods.get(namespace, &owner.name) else { return Ok(()) };
        if pod.metadata.uid.as_ref() == Some(&owner.uid) && !claims::is_pod_done(&pod) {
            return Ok(());
        }
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        match api.delete(&claim.name_any(), &DeleteParams::default()).await {
            Err(error) if error.is_not_found() => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    async fn update_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, kube::Error> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        api.replace_status(&claim.name_any(), &PostParams::default(), claim).await
    }
}

/// Queues a pod that uses claims, and its claims if it does not need them any more.
fn enqueue_pod(queue: &WorkQueue<ResourceClaimKey>, pod: &PodView, is_deleted: bool) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
    if is_deleted || claims::is_pod_done(pod) {
        let names = claims::pod_claim_names(pod);
        names.for_each(|name| queue.add(ResourceClaimKey::Claim(ObjectKey::new(namespace, name))));
    } else if !pod_entries(pod).is_empty() {
        queue.add(ResourceClaimKey::Pod(ObjectKey::from_object(pod)));
    }
}
