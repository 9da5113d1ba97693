//! Processing of one object from the queue.

use client::{ApiErrorExt, RequeueAction};
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::json;

use super::{
    GarbageCollector,
    graph::{DeletionState, FOREGROUND, GraphNode, ORPHAN, ObjectUid},
};

/// An object could not be processed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("owner {name:?} is of kind {kind:?} in {api_version:?}, which the server does not have")]
    UnknownKind { api_version: String, kind: String, name: String },
}

/// An object's owners by their live state.
#[derive(Default)]
struct ClassifiedOwners {
    /// Owners that exist and do not wait for the object's deletion.
    solid: Vec<OwnerReference>,
    /// Owners that do not exist.
    dangling: Vec<OwnerReference>,
    /// Owners in foreground deletion that wait for the object.
    waiting: Vec<OwnerReference>,
}

impl GarbageCollector {
    pub(super) async fn sync_object(&self, uid: &ObjectUid) -> Result<RequeueAction, CollectError> {
        let Some(node) = self.lock_graph().get(uid).cloned() else { return Ok(RequeueAction::AwaitChange) };
        let done = match node.state {
            DeletionState::Deleting => Ok(()),
            DeletionState::Orphaning => self.orphan_dependents(uid, &node).await,
            DeletionState::Foreground => self.process_deleting_dependents(uid, &node).await,
            DeletionState::Alive => self.attempt_to_delete_item(uid, &node).await,
        };
        match done {
            Ok(()) => Ok(RequeueAction::AwaitChange),
            Err(CollectError::Api(error)) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object if it has no solid owner.
    async fn attempt_to_delete_item(&self, uid: &ObjectUid, node: &GraphNode) -> Result<(), CollectError> {
        let Some(latest) = self.get_live_metadata(uid, node).await? else { return Ok(()) };
        let references = latest.owner_references.clone().unwrap_or_default();
        if references.is_empty() || latest.deletion_timestamp.is_some() {
            return Ok(());
        }
        let owners = self.classify_references(node, &latest, references).await?;
        if !owners.solid.is_empty() {
            if owners.dangling.is_empty() && owners.waiting.is_empty() {
                return Ok(());
            }
            return self.set_owners(node, &latest, owners.solid).await;
        }
        if !owners.waiting.is_empty() && self.has_dependents(uid) {
            if self.has_circular_dependency(uid) {
                return self.unblock_owner_references(node, &latest).await;
            }
            return self.delete_object(node, &latest, PropagationPolicy::Foreground).await;
        }
        let has = |name: &str| latest.finalizers.iter().flatten().any(|finalizer| finalizer == name);
        let policy = match () {
            () if has(ORPHAN) => PropagationPolicy::Orphan,
            () if has(FOREGROUND) => PropagationPolicy::Foreground,
            () => PropagationPolicy::Background,
        };
        self.delete_object(node, &latest, policy).await
    }

    async fn classify_references(
        &self,
        node: &GraphNode,
        object: &ObjectMeta,
        references: Vec<OwnerReference>,
    ) -> Result<ClassifiedOwners, CollectError> {
        let mut owners = ClassifiedOwners::default();
        for reference in references {
            self.record_foreign_owner(node, object, &reference);
            match self.lookup_owner_state(object, &reference).await? {
                None => owners.dangling.push(reference),
                Some(DeletionState::Foreground) => owners.waiting.push(reference),
                Some(_) => owners.solid.push(reference),
            }
        }
        Ok(owners)
    }

    /// Records a warning if the referenced owner is known to be in another namespace.
    fn record_foreign_owner(&self, node: &GraphNode, object: &ObjectMeta, reference: &OwnerReference) {
        let owner_namespace = self.lock_graph().get(&reference.uid).map(|owner| owner.namespace.clone());
        if owner_namespace.is_none_or(|namespace| namespace.is_empty() || namespace == node.namespace) {
            return;
        }
        let Some(resource) = self.lock_resources().get(node.resource).map(|known| known.resource.clone()) else {
            return;
        };
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let namespace = &node.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
             namespace {namespace:?}"
        );
        let regarding = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
            ..Default::default()
        };
        self.recorder.record_warning(regarding, "OwnerRefInvalidNamespace", message);
    }

    /// Returns the state of the referenced owner from the graph, or else from the server.
    async fn lookup_owner_state(
        &self,
        object: &ObjectMeta,
        reference: &OwnerReference,
    ) -> Result<Option<DeletionState>, CollectError> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = self
            .lock_resources()
            .iter()
            .position(|kind| kind.resource.group == group && kind.resource.kind == reference.kind);
        let Some(index) = kind else {
            let OwnerReference { api_version, kind, name, .. } = reference.clone();
            return Err(CollectError::UnknownKind { api_version, kind, name });
        };
        let kind = self.lock_resources()[index].clone();
        let namespace = object.namespace.as_deref().filter(|_| kind.is_namespaced()).unwrap_or("");
        let known = self.lock_graph().get(&reference.uid).cloned();
        if let Some(owner) = known
            .filter(|owner| owner.resource == index && *owner.namespace == *namespace && *owner.name == *reference.name)
        {
            return Ok(Some(owner.state));
        }
        if kind.is_namespaced() && namespace.is_empty() {
            tracing::warn!(object = ?object.name, owner = reference.name, "garbage collector: cluster-scoped object has a namespaced owner, ignored");
            return Ok(Some(DeletionState::Alive));
        }
        let live = kind.dynamic_api(&self.client, namespace).get_metadata_opt(&reference.name).await?;
        let live = live.filter(|live| live.metadata.uid.as_ref() == Some(&reference.uid));
        Ok(live.map(|live| {
            let waits = live.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
            if live.metadata.deletion_timestamp.is_some() && waits {
                DeletionState::Foreground
            } else {
                DeletionState::Alive
            }
        }))
    }

    /// Completes a foreground deletion once nothing blocks it; until then queues the blocking dependents.
    async fn process_deleting_dependents(&self, uid: &ObjectUid, node: &GraphNode) -> Result<(), CollectError> {
        let blocking = self.lock_graph().blocking_dependents(uid);
        if blocking.is_empty() {
            return self.remove_finalizer(uid, node, FOREGROUND).await;
        }
        let alive = |dependent: &ObjectUid| {
            self.lock_graph().get(dependent).is_some_and(|node| node.state == DeletionState::Alive)
        };
        self.enqueue_all(blocking.into_iter().filter(alive).collect());
        Ok(())
    }

    /// Removes the owner from its dependents' references, then completes its deletion.
    async fn orphan_dependents(&self, uid: &ObjectUid, node: &GraphNode) -> Result<(), CollectError> {
        let dependents = self.lock_graph().dependents_of(uid);
        for dependent in dependents {
            let Some(dependent_node) = self.lock_graph().get(&dependent).cloned() else { continue };
            let Some(latest) = self.get_live_metadata(&dependent, &dependent_node).await? else { continue };
            let mut owners = latest.owner_references.clone().unwrap_or_default();
            owners.retain(|owner| *owner.uid != **uid);
            self.set_owners(&dependent_node, &latest, owners).await?;
        }
        self.remove_finalizer(uid, node, ORPHAN).await
    }

    fn has_dependents(&self, uid: &ObjectUid) -> bool {
        !self.lock_graph().dependents_of(uid).is_empty()
    }

    /// Whether the object waits for a dependent that waits for it.
    fn has_circular_dependency(&self, uid: &ObjectUid) -> bool {
        let graph = self.lock_graph();
        let dependents = graph.dependents_of(uid);
        dependents
            .iter()
            .any(|dependent| graph.get(dependent).is_some_and(|node| node.state == DeletionState::Foreground))
    }

    /// Reads the object's metadata from the server; an object that is gone leaves the graph.
    async fn get_live_metadata(&self, uid: &ObjectUid, node: &GraphNode) -> Result<Option<ObjectMeta>, CollectError> {
        let live = self.node_api(node).get_metadata_opt(&node.name).await?.map(|live| live.metadata);
        let live = live.filter(|live| live.uid.as_deref() == Some(uid));
        if live.is_none() {
            let affected = self.lock_graph().remove_object(uid);
            self.enqueue_all(affected);
        }
        Ok(live)
    }

    async fn remove_finalizer(&self, uid: &ObjectUid, node: &GraphNode, finalizer: &str) -> Result<(), CollectError> {
        let Some(latest) = self.get_live_metadata(uid, node).await? else { return Ok(()) };
        let mut finalizers = latest.finalizers.clone().unwrap_or_default();
        finalizers.retain(|present| present != finalizer);
        if latest.finalizers.as_ref().is_some_and(|present| present.len() == finalizers.len()) {
            return Ok(());
        }
        self.patch_metadata(node, &latest, json!({"finalizers": finalizers})).await
    }

    async fn set_owners(
        &self,
        node: &GraphNode,
        latest: &ObjectMeta,
        owners: Vec<OwnerReference>,
    ) -> Result<(), CollectError> {
        self.patch_metadata(node, latest, json!({"ownerReferences": owners})).await
    }

    /// Breaks a cycle: clears `blockOwnerDeletion` on the object's references and deletes it.
    async fn unblock_owner_references(&self, node: &GraphNode, latest: &ObjectMeta) -> Result<(), CollectError> {
        let mut owners = latest.owner_references.clone().unwrap_or_default();
        owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
        self.set_owners(node, latest, owners).await?;
        let unblocked = ObjectMeta { resource_version: None, ..latest.clone() };
        self.delete_object(node, &unblocked, PropagationPolicy::Foreground).await
    }

    /// Patches the metadata of this version of the object.
    async fn patch_metadata(
        &self,
        node: &GraphNode,
        latest: &ObjectMeta,
        mut metadata: serde_json::Value,
    ) -> Result<(), CollectError> {
        metadata["uid"] = json!(latest.uid);
        metadata["resourceVersion"] = json!(latest.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.node_api(node).patch(&node.name, &PatchParams::default(), &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes this version of the object; a newer one may have other owners.
    async fn delete_object(
        &self,
        node: &GraphNode,
        latest: &ObjectMeta,
        policy: PropagationPolicy,
    ) -> Result<(), CollectError> {
        let preconditions =
            Preconditions { uid: latest.uid.clone(), resource_version: latest.resource_version.clone() };
        let how =
            DeleteParams { propagation_policy: Some(policy), preconditions: Some(preconditions), ..Default::default() };
        tracing::debug!(name = %node.name, namespace = %node.namespace, "garbage collector: deleting object without live owners");
        match self.node_api(node).delete(&node.name, &how).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn node_api(&self, node: &GraphNode) -> Api<DynamicObject> {
        self.lock_resources()[node.resource].dynamic_api(&self.client, &node.namespace)
    }
}
