//! Who owns whom: one small node per object, and for each owner the set of its dependents.
//!
//! An owner need not be known for its dependents to be: references name owners that are gone, or not yet seen. Every
//! change says which nodes must be looked at.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// An object's uid.
pub(super) type Uid = Arc<str>;

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Alive,
    /// Being deleted; its dependents follow when it is gone.
    Deleting,
    /// Being deleted, and waits until its blocking dependents are gone.
    Foreground,
    /// Being deleted, and waits until its dependents no longer refer to it.
    Orphaning,
}

/// What is known of an object.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Index into the collector's table of kinds.
    pub(super) kind: usize,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) state: State,
    owners: Box<[Owner]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    uid: Uid,
    blocks: bool,
}

/// All objects. A uid is in `dependents[owner]` exactly when its node names that owner.
#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, HashSet<Uid>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uids that name this one as an owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Uid> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The dependents without which a foreground deletion may not end.
    pub(super) fn blocking(&self, uid: &str) -> Vec<Uid> {
        let blocks = |dependent: &Uid| {
            let node = self.nodes.get(dependent);
            node.is_some_and(|node| node.owners.iter().any(|owner| &*owner.uid == uid && owner.blocks))
        };
        self.dependents.get(uid).into_iter().flatten().filter(|dependent| blocks(dependent)).cloned().collect()
    }

    /// Takes in an object's newest state; returns the uids to look at.
    pub(super) fn apply(&mut self, kind: usize, meta: &ObjectMeta) -> Vec<Uid> {
        let Some(uid) = meta.uid.as_deref() else { return Vec::new() };
        let uid = self.intern(uid);
        let node = Node {
            kind,
            namespace: meta.namespace.as_deref().unwrap_or("").into(),
            name: meta.name.as_deref().unwrap_or("").into(),
            state: state_of(meta),
            owners: meta.owner_references.iter().flatten().map(|reference| self.owner(reference)).collect(),
        };
        let mut affected = Vec::new();
        let before = self.nodes.remove(&uid);
        let (old_owners, old_state) = before.map_or((Box::default(), State::Alive), |node| (node.owners, node.state));
        for owner in old_owners.iter().filter(|owner| !node.owners.contains(owner)) {
            self.unlink(&uid, &owner.uid);
            affected.extend(self.waiting(&owner.uid));
        }
        for owner in node.owners.iter().filter(|owner| !old_owners.contains(owner)) {
            let owner_state = self.nodes.get(&owner.uid).map(|node| node.state);
            if owner_state != Some(State::Alive) {
                affected.push(uid.clone());
            }
            affected.extend(self.waiting(&owner.uid));
        }
        node.owners.iter().for_each(|owner| {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        });
        if node.state != old_state && matches!(node.state, State::Foreground | State::Orphaning) {
            affected.push(uid.clone());
        }
        if node.state != old_state && node.state == State::Foreground {
            affected.extend(self.dependents(&uid));
        }
        self.nodes.insert(uid, node);
        affected
    }

    /// Takes an object out; returns the uids to look at: its dependents, and owners that waited for it.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let mut affected = self.dependents(uid);
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink(uid, &owner.uid);
                affected.extend(self.waiting(&owner.uid));
            }
        }
        affected
    }

    /// Takes out all objects of a kind except these.
    pub(super) fn retain(&mut self, kind: usize, listed: &HashSet<Uid>) -> Vec<Uid> {
        let is_gone = |(uid, node): (&Uid, &Node)| (node.kind == kind && !listed.contains(uid)).then(|| uid.clone());
        let gone: Vec<Uid> = self.nodes.iter().filter_map(is_gone).collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    fn waiting(&self, uid: &Uid) -> Option<Uid> {
        self.nodes.get(uid).filter(|node| node.state == State::Foreground).map(|_| uid.clone())
    }

    fn unlink(&mut self, dependent: &str, owner: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn owner(&self, reference: &OwnerReference) -> Owner {
        Owner { uid: self.intern(&reference.uid), blocks: reference.block_owner_deletion == Some(true) }
    }

    /// One copy of each uid is enough.
    fn intern(&self, uid: &str) -> Uid {
        let known = self.nodes.get_key_value(uid).map(|(uid, _)| uid);
        known.or_else(|| self.dependents.get_key_value(uid).map(|(uid, _)| uid)).cloned().unwrap_or_else(|| uid.into())
    }
}

fn state_of(meta: &ObjectMeta) -> State {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    match meta.deletion_timestamp {
        None => State::Alive,
        Some(_) if has(ORPHAN) => State::Orphaning,
        Some(_) if has(FOREGROUND) => State::Foreground,
        Some(_) => State::Deleting,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn object(uid: &str, owners: &[&str], finalizer: Option<&str>) -> ObjectMeta {
        let owner =
            |uid: &&str| OwnerReference { uid: (*uid).into(), block_owner_deletion: Some(true), ..Default::default() };
        ObjectMeta {
            uid: Some(uid.into()),
            name: Some(uid.into()),
            owner_references: Some(owners.iter().map(owner).collect()),
            deletion_timestamp: finalizer.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
            finalizers: finalizer.map(|name| vec![name.into()]),
            ..Default::default()
        }
    }

    fn check(affected: Vec<Uid>, expected: &[&str]) {
        let mut affected: Vec<&str> = affected.iter().map(|uid| &**uid).collect();
        affected.sort_unstable();
        affected.dedup();
        assert_eq!(affected, expected);
    }

    #[test]
    fn an_absent_owner_makes_its_dependent_suspect() {
        let mut graph = Graph::default();
        check(graph.apply(0, &object("pod", &["rs"], None)), &["pod"]);
        check(graph.apply(0, &object("rs", &[], None)), &[]);
        check(graph.apply(0, &object("pod2", &["rs"], None)), &[]);
        check(graph.remove("rs"), &["pod", "pod2"]);
        check(graph.remove("never-seen"), &[]);
    }

    #[test]
    fn foreground_wakes_dependents_and_each_end_wakes_the_owner() {
        let mut graph = Graph::default();
        graph.apply(0, &object("rs", &[], None));
        graph.apply(0, &object("a", &["rs"], None));
        graph.apply(0, &object("b", &["rs"], None));
        check(graph.apply(0, &object("rs", &[], Some(FOREGROUND))), &["a", "b", "rs"]);
        check(graph.apply(0, &object("rs", &[], Some(FOREGROUND))), &[]);
        check(graph.blocking("rs"), &["a", "b"]);
        check(graph.remove("a"), &["rs"]);
        check(graph.apply(0, &object("b", &[], None)), &["rs"]);
        check(graph.blocking("rs"), &[]);
        assert!(graph.dependents.is_empty());
    }

    #[test]
    fn orphaning_wakes_the_owner_only() {
        let mut graph = Graph::default();
        graph.apply(0, &object("rs", &[], None));
        graph.apply(0, &object("a", &["rs"], None));
        check(graph.apply(0, &object("rs", &[], Some(ORPHAN))), &["rs"]);
        check(graph.dependents("rs"), &["a"]);
    }

    #[test]
    fn a_new_list_takes_out_what_it_lacks() {
        let mut graph = Graph::default();
        graph.apply(1, &object("rs", &[], None));
        graph.apply(2, &object("a", &["rs"], None));
        check(graph.retain(1, &HashSet::new()), &["a"]);
        assert!(graph.get("rs").is_none() && graph.get("a").is_some());
    }

    #[test]
    fn an_unblocked_reference_wakes_a_waiting_owner() {
        let mut graph = Graph::default();
        graph.apply(0, &object("rs", &[], Some(FOREGROUND)));
        graph.apply(0, &object("a", &["rs"], None));
        let mut unblocked = object("a", &["rs"], None);
        unblocked.owner_references.as_mut().unwrap()[0].block_owner_deletion = None;
        check(graph.apply(0, &unblocked), &["a", "rs"]);
        check(graph.blocking("rs"), &[]);
        check(graph.dependents("rs"), &["a"]);
    }
}
