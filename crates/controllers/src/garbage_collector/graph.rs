//! The owner graph: one node per object, and the set of dependents per owner.
//!
//! References may name owners that are deleted or not yet observed. Every change returns the objects to reexamine.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// An object's uid.
pub(super) type ObjectUid = Arc<str>;

/// Deletion state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionState {
    Alive,
    /// Being deleted in the background.
    Deleting,
    /// Being deleted in the foreground; waits for its blocking dependents.
    Foreground,
    /// Being deleted with orphaning; waits until its dependents no longer refer to it.
    Orphaning,
}

/// A node of the graph.
#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    /// Index into the collector's resources.
    pub(super) resource: usize,
    kind: Arc<str>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) state: DeletionState,
    owners: Box<[OwnerEdge]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnerEdge {
    uid: ObjectUid,
    kind: Box<str>,
    name: Box<str>,
    blocks: bool,
}

/// All nodes. Invariant: a uid is in `dependents[owner]` exactly when its node names that owner.
#[derive(Default)]
pub(super) struct DependencyGraph {
    nodes: HashMap<ObjectUid, GraphNode>,
    dependents: HashMap<ObjectUid, HashSet<ObjectUid>>,
}

impl DependencyGraph {
    pub(super) fn get(&self, uid: &str) -> Option<&GraphNode> {
        self.nodes.get(uid)
    }

    /// Returns the objects that name this one as owner.
    pub(super) fn dependents_of(&self, uid: &str) -> Vec<ObjectUid> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Returns the dependents that block a foreground deletion.
    pub(super) fn blocking_dependents(&self, uid: &str) -> Vec<ObjectUid> {
        let blocks = |dependent: &ObjectUid| {
            let node = self.nodes.get(dependent);
            node.is_some_and(|node| node.owners.iter().any(|owner| &*owner.uid == uid && owner.blocks))
        };
        self.dependents.get(uid).into_iter().flatten().filter(|dependent| blocks(dependent)).cloned().collect()
    }

    /// Inserts or updates an object; returns the uids to reexamine.
    pub(super) fn upsert_object(&mut self, resource: usize, kind: &Arc<str>, meta: &ObjectMeta) -> Vec<ObjectUid> {
        let Some(uid) = meta.uid.as_deref() else { return Vec::new() };
        let uid = self.intern_uid(uid);
        let node = GraphNode {
            resource,
            kind: kind.clone(),
            namespace: meta.namespace.as_deref().unwrap_or("").into(),
            name: meta.name.as_deref().unwrap_or("").into(),
            state: deletion_state(meta),
            owners: meta.owner_references.iter().flatten().map(|reference| self.owner_edge(reference)).collect(),
        };
        let mut affected = Vec::new();
        let before = self.nodes.remove(&uid);
        if before.is_none() {
            affected.extend(self.misdirected_dependents(&uid, &node));
        }
        let (old_owners, old_state) =
            before.map_or((Box::default(), DeletionState::Alive), |node| (node.owners, node.state));
        for owner in old_owners.iter().filter(|owner| !node.owners.contains(owner)) {
            self.unlink_owner(&uid, &owner.uid);
            affected.extend(self.waiting_owner(&owner.uid));
        }
        for owner in node.owners.iter().filter(|owner| !old_owners.contains(owner)) {
            let known = self.nodes.get(&owner.uid);
            if known.is_none_or(|known| known.state != DeletionState::Alive || !owner.refers_to(known, &node)) {
                affected.push(uid.clone());
            }
            affected.extend(self.waiting_owner(&owner.uid));
        }
        node.owners.iter().for_each(|owner| {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        });
        if node.state != old_state && matches!(node.state, DeletionState::Foreground | DeletionState::Orphaning) {
            affected.push(uid.clone());
        }
        if node.state != old_state && node.state == DeletionState::Foreground {
            affected.extend(self.dependents_of(&uid));
        }
        self.nodes.insert(uid, node);
        affected
    }

    /// Removes an object; returns the uids to reexamine: its dependents, and owners that waited for it.
    pub(super) fn remove_object(&mut self, uid: &str) -> Vec<ObjectUid> {
        let mut affected = self.dependents_of(uid);
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink_owner(uid, &owner.uid);
                affected.extend(self.waiting_owner(&owner.uid));
            }
        }
        affected
    }

    /// Removes all objects of a resource that are not in `listed`.
    pub(super) fn retain_listed(&mut self, kind: usize, listed: &HashSet<ObjectUid>) -> Vec<ObjectUid> {
        let is_gone = |(uid, node): (&ObjectUid, &GraphNode)| {
            (node.resource == kind && !listed.contains(uid)).then(|| uid.clone())
        };
        let gone: Vec<ObjectUid> = self.nodes.iter().filter_map(is_gone).collect();
        gone.iter().flat_map(|uid| self.remove_object(uid)).collect()
    }

    /// Returns the dependents whose references do not match an owner that is observed for the first time.
    fn misdirected_dependents(&self, uid: &ObjectUid, owner: &GraphNode) -> Vec<ObjectUid> {
        let is_misdirected = |dependent: &ObjectUid| {
            self.nodes
                .get(dependent)
                .is_some_and(|node| node.owners.iter().any(|edge| edge.uid == *uid && !edge.refers_to(owner, node)))
        };
        self.dependents_of(uid).into_iter().filter(is_misdirected).collect()
    }

    fn waiting_owner(&self, uid: &ObjectUid) -> Option<ObjectUid> {
        self.nodes.get(uid).filter(|node| node.state == DeletionState::Foreground).map(|_| uid.clone())
    }

    fn unlink_owner(&mut self, dependent: &str, owner: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn owner_edge(&self, reference: &OwnerReference) -> OwnerEdge {
        OwnerEdge {
            uid: self.intern_uid(&reference.uid),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            blocks: reference.block_owner_deletion == Some(true),
        }
    }

    /// Returns the shared copy of a uid.
    fn intern_uid(&self, uid: &str) -> ObjectUid {
        let known = self.nodes.get_key_value(uid).map(|(uid, _)| uid);
        known.or_else(|| self.dependents.get_key_value(uid).map(|(uid, _)| uid)).cloned().unwrap_or_else(|| uid.into())
    }
}

impl OwnerEdge {
    /// Whether the reference of `dependent` names this owner, in the same namespace if it has one.
    fn refers_to(&self, owner: &GraphNode, dependent: &GraphNode) -> bool {
        let is_reachable = owner.namespace.is_empty() || owner.namespace == dependent.namespace;
        is_reachable && *self.name == *owner.name && *self.kind == *owner.kind
    }
}

fn deletion_state(meta: &ObjectMeta) -> DeletionState {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    match meta.deletion_timestamp {
        None => DeletionState::Alive,
        Some(_) if has(ORPHAN) => DeletionState::Orphaning,
        Some(_) if has(FOREGROUND) => DeletionState::Foreground,
        Some(_) => DeletionState::Deleting,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn kind() -> Arc<str> {
        "Thing".into()
    }

    fn object(uid: &str, owners: &[&str], finalizer: Option<&str>) -> ObjectMeta {
        let owner = |uid: &&str| OwnerReference {
            uid: (*uid).into(),
            name: (*uid).into(),
            kind: "Thing".into(),
            block_owner_deletion: Some(true),
            ..Default::default()
        };
        ObjectMeta {
            uid: Some(uid.into()),
            name: Some(uid.into()),
            owner_references: Some(owners.iter().map(owner).collect()),
            deletion_timestamp: finalizer.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
            finalizers: finalizer.map(|name| vec![name.into()]),
            ..Default::default()
        }
    }

    fn check(affected: Vec<ObjectUid>, expected: &[&str]) {
        let mut affected: Vec<&str> = affected.iter().map(|uid| &**uid).collect();
        affected.sort_unstable();
        affected.dedup();
        assert_eq!(affected, expected);
    }

    #[test]
    fn dependent_of_an_absent_owner_is_reexamined() {
        let mut graph = DependencyGraph::default();
        check(graph.upsert_object(0, &kind(), &object("pod", &["rs"], None)), &["pod"]);
        check(graph.upsert_object(0, &kind(), &object("rs", &[], None)), &[]);
        check(graph.upsert_object(0, &kind(), &object("pod2", &["rs"], None)), &[]);
        check(graph.remove_object("rs"), &["pod", "pod2"]);
        check(graph.remove_object("never-seen"), &[]);
    }

    #[test]
    fn foreground_deletion_reexamines_dependents_then_the_owner() {
        let mut graph = DependencyGraph::default();
        graph.upsert_object(0, &kind(), &object("rs", &[], None));
        graph.upsert_object(0, &kind(), &object("a", &["rs"], None));
        graph.upsert_object(0, &kind(), &object("b", &["rs"], None));
        check(graph.upsert_object(0, &kind(), &object("rs", &[], Some(FOREGROUND))), &["a", "b", "rs"]);
        check(graph.upsert_object(0, &kind(), &object("rs", &[], Some(FOREGROUND))), &[]);
        check(graph.blocking_dependents("rs"), &["a", "b"]);
        check(graph.remove_object("a"), &["rs"]);
        check(graph.upsert_object(0, &kind(), &object("b", &[], None)), &["rs"]);
        check(graph.blocking_dependents("rs"), &[]);
        assert!(graph.dependents.is_empty());
    }

    #[test]
    fn orphaning_reexamines_only_the_owner() {
        let mut graph = DependencyGraph::default();
        graph.upsert_object(0, &kind(), &object("rs", &[], None));
        graph.upsert_object(0, &kind(), &object("a", &["rs"], None));
        check(graph.upsert_object(0, &kind(), &object("rs", &[], Some(ORPHAN))), &["rs"]);
        check(graph.dependents_of("rs"), &["a"]);
    }

    #[test]
    fn relist_removes_missing_objects() {
        let mut graph = DependencyGraph::default();
        graph.upsert_object(1, &kind(), &object("rs", &[], None));
        graph.upsert_object(2, &kind(), &object("a", &["rs"], None));
        check(graph.retain_listed(1, &HashSet::new()), &["a"]);
        assert!(graph.get("rs").is_none() && graph.get("a").is_some());
    }

    #[test]
    fn unblocked_reference_reexamines_the_waiting_owner() {
        let mut graph = DependencyGraph::default();
        graph.upsert_object(0, &kind(), &object("rs", &[], Some(FOREGROUND)));
        graph.upsert_object(0, &kind(), &object("a", &["rs"], None));
        let mut unblocked = object("a", &["rs"], None);
        unblocked.owner_references.as_mut().unwrap()[0].block_owner_deletion = None;
        check(graph.upsert_object(0, &kind(), &unblocked), &["a", "rs"]);
        check(graph.blocking_dependents("rs"), &[]);
        check(graph.dependents_of("rs"), &["a"]);
    }

    #[test]
    fn dependent_of_an_owner_in_another_namespace_is_reexamined() {
        let in_namespace = |mut meta: ObjectMeta, namespace: &str| {
            meta.namespace = Some(namespace.into());
            meta
        };
        let mut graph = DependencyGraph::default();
        graph.upsert_object(0, &kind(), &in_namespace(object("owner", &[], None), "a"));
        let astray = in_namespace(object("astray", &["owner"], None), "b");
        check(graph.upsert_object(0, &kind(), &astray), &["astray"]);
        check(graph.upsert_object(0, &kind(), &in_namespace(object("near", &["owner"], None), "a")), &[]);
        check(graph.upsert_object(0, &"Other".into(), &in_namespace(object("late", &["later"], None), "a")), &["late"]);
        check(graph.upsert_object(0, &kind(), &in_namespace(object("later", &[], None), "b")), &["late"]);
    }
}
