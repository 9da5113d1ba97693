//! What happens to one object that the graph says should be looked at.

use client::{ApiErrorExt, Requeue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::json;

use super::{
    Collector,
    graph::{FOREGROUND, Node, ORPHAN, State, Uid},
};

/// Why an object could not be judged.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("owner {name:?} is of kind {kind:?} in {api_version:?}, which the server does not have")]
    UnknownKind { api_version: String, kind: String, name: String },
}

/// An object's owners, as they are now.
#[derive(Default)]
struct Owners {
    /// Exist and stay, or go without waiting for the object.
    solid: Vec<OwnerReference>,
    /// Do not exist.
    gone: Vec<OwnerReference>,
    /// Are being deleted and wait for the object to go first.
    waiting: Vec<OwnerReference>,
}

impl Collector {
    pub(super) async fn sync(&self, uid: &Uid) -> Result<Requeue, Error> {
        let Some(node) = self.graph().get(uid).cloned() else { return Ok(Requeue::No) };
        let done = match node.state {
            State::Deleting => Ok(()),
            State::Orphaning => self.orphan(uid, &node).await,
            State::Foreground => self.foreground(uid, &node).await,
            State::Alive => self.judge(uid, &node).await,
        };
        match done {
            Ok(()) => Ok(Requeue::No),
            Err(Error::Api(error)) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object if none of its owners is left.
    async fn judge(&self, uid: &Uid, node: &Node) -> Result<(), Error> {
        let Some(latest) = self.latest(uid, node).await? else { return Ok(()) };
        let references = latest.owner_references.clone().unwrap_or_default();
        if references.is_empty() || latest.deletion_timestamp.is_some() {
            return Ok(());
        }
        let owners = self.classify(&latest, references).await?;
        if !owners.solid.is_empty() {
            if owners.gone.is_empty() && owners.waiting.is_empty() {
                return Ok(());
            }
            return self.set_owners(node, &latest, owners.solid).await;
        }
        if !owners.waiting.is_empty() && self.has_dependents(uid) {
            if self.is_in_circle(uid) {
                return self.unblock(node, &latest).await;
            }
            return self.delete(node, &latest, PropagationPolicy::Foreground).await;
        }
        let has = |name: &str| latest.finalizers.iter().flatten().any(|finalizer| finalizer == name);
        let policy = match () {
            () if has(ORPHAN) => PropagationPolicy::Orphan,
            () if has(FOREGROUND) => PropagationPolicy::Foreground,
            () => PropagationPolicy::Background,
        };
        self.delete(node, &latest, policy).await
    }

    async fn classify(&self, object: &ObjectMeta, references: Vec<OwnerReference>) -> Result<Owners, Error> {
        let mut owners = Owners::default();
        for reference in references {
            match self.owner_state(object, &reference).await? {
                None => owners.gone.push(reference),
                Some(State::Foreground) => owners.waiting.push(reference),
                Some(_) => owners.solid.push(reference),
            }
        }
        Ok(owners)
    }

    /// The state of the owner that a reference names, as the graph knows it or else the server.
    async fn owner_state(&self, object: &ObjectMeta, reference: &OwnerReference) -> Result<Option<State>, Error> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        let kind =
            self.kinds().iter().position(|kind| kind.resource.group == group && kind.resource.kind == reference.kind);
        let Some(index) = kind else {
            let OwnerReference { api_version, kind, name, .. } = reference.clone();
            return Err(Error::UnknownKind { api_version, kind, name });
        };
        let kind = self.kinds()[index].clone();
        let namespace = object.namespace.as_deref().filter(|_| kind.is_namespaced()).unwrap_or("");
        let known = self.graph().get(&reference.uid).cloned();
        if let Some(owner) = known
            .filter(|owner| owner.kind == index && *owner.namespace == *namespace && *owner.name == *reference.name)
        {
            return Ok(Some(owner.state));
        }
        if kind.is_namespaced() && namespace.is_empty() {
            tracing::warn!(object = ?object.name, owner = reference.name, "an object of the cluster cannot be owned by one of a namespace");
            return Ok(Some(State::Alive));
        }
        let live = kind.api(&self.client, namespace).get_metadata_opt(&reference.name).await?;
        let live = live.filter(|live| live.metadata.uid.as_ref() == Some(&reference.uid));
        Ok(live.map(|live| {
            let waits = live.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
            if live.metadata.deletion_timestamp.is_some() && waits { State::Foreground } else { State::Alive }
        }))
    }

    /// Lets a foreground deletion end once nothing blocks it; until then sees to what does.
    async fn foreground(&self, uid: &Uid, node: &Node) -> Result<(), Error> {
        let blocking = self.graph().blocking(uid);
        if blocking.is_empty() {
            return self.remove_finalizer(uid, node, FOREGROUND).await;
        }
        let alive = |dependent: &Uid| self.graph().get(dependent).is_some_and(|node| node.state == State::Alive);
        self.wake(blocking.into_iter().filter(alive).collect());
        Ok(())
    }

    /// Takes the object's name out of its dependents, then lets it go.
    async fn orphan(&self, uid: &Uid, node: &Node) -> Result<(), Error> {
        let dependents = self.graph().dependents(uid);
        for dependent in dependents {
            let Some(dependent_node) = self.graph().get(&dependent).cloned() else { continue };
            let Some(latest) = self.latest(&dependent, &dependent_node).await? else { continue };
            let mut owners = latest.owner_references.clone().unwrap_or_default();
            owners.retain(|owner| *owner.uid != **uid);
            self.set_owners(&dependent_node, &latest, owners).await?;
        }
        self.remove_finalizer(uid, node, ORPHAN).await
    }

    fn has_dependents(&self, uid: &Uid) -> bool {
        !self.graph().dependents(uid).is_empty()
    }

    /// Whether the object waits for something that waits for it.
    fn is_in_circle(&self, uid: &Uid) -> bool {
        let graph = self.graph();
        let dependents = graph.dependents(uid);
        dependents.iter().any(|dependent| graph.get(dependent).is_some_and(|node| node.state == State::Foreground))
    }

    /// The server's view of an object; one that is gone leaves the graph.
    async fn latest(&self, uid: &Uid, node: &Node) -> Result<Option<ObjectMeta>, Error> {
        let live = self.api(node).get_metadata_opt(&node.name).await?.map(|live| live.metadata);
        let live = live.filter(|live| live.uid.as_deref() == Some(uid));
        if live.is_none() {
            let affected = self.graph().remove(uid);
            self.wake(affected);
        }
        Ok(live)
    }

    async fn remove_finalizer(&self, uid: &Uid, node: &Node, finalizer: &str) -> Result<(), Error> {
        let Some(latest) = self.latest(uid, node).await? else { return Ok(()) };
        let mut finalizers = latest.finalizers.clone().unwrap_or_default();
        finalizers.retain(|present| present != finalizer);
        if latest.finalizers.as_ref().is_some_and(|present| present.len() == finalizers.len()) {
            return Ok(());
        }
        self.patch(node, &latest, json!({"finalizers": finalizers})).await
    }

    async fn set_owners(&self, node: &Node, latest: &ObjectMeta, owners: Vec<OwnerReference>) -> Result<(), Error> {
        self.patch(node, latest, json!({"ownerReferences": owners})).await
    }

    /// Breaks a circle: its owners no longer wait for the object. Seeing that, they come back to it.
    async fn unblock(&self, node: &Node, latest: &ObjectMeta) -> Result<(), Error> {
        let mut owners = latest.owner_references.clone().unwrap_or_default();
        owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
        self.set_owners(node, latest, owners).await?;
        let unblocked = ObjectMeta { resource_version: None, ..latest.clone() };
        self.delete(node, &unblocked, PropagationPolicy::Foreground).await
    }

    /// Only this version of this object is changed.
    async fn patch(&self, node: &Node, latest: &ObjectMeta, mut metadata: serde_json::Value) -> Result<(), Error> {
        metadata["uid"] = json!(latest.uid);
        metadata["resourceVersion"] = json!(latest.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.api(node).patch(&node.name, &PatchParams::default(), &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Only this version of this object is deleted: a newer one may have other owners.
    async fn delete(&self, node: &Node, latest: &ObjectMeta, policy: PropagationPolicy) -> Result<(), Error> {
        let preconditions =
            Preconditions { uid: latest.uid.clone(), resource_version: latest.resource_version.clone() };
        let how =
            DeleteParams { propagation_policy: Some(policy), preconditions: Some(preconditions), ..Default::default() };
        tracing::debug!(name = %node.name, namespace = %node.namespace, "deleting: its owners are gone or going");
        match self.api(node).delete(&node.name, &how).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn api(&self, node: &Node) -> Api<DynamicObject> {
        self.kinds()[node.kind].api(&self.client, &node.namespace)
    }
}
