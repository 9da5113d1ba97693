//! Index of stored CRDs: the resources of those that are served, and a summary of each for the CRD status controller.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Value, meta};
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};
use bytes::Bytes;
use store::{CachedItem, Revision};
use tokio_util::sync::CancellationToken;

use super::{Rows, approval::Approval, find_condition, gate::Gate, is_true};
use crate::Definition;

/// The state of a CRD that the CRD status controller reconciles from.
#[derive(Debug)]
pub struct Summary {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.group`.
    pub group: String,
    /// The requested names, `spec.names`.
    pub wanted: Value,
    /// `status.acceptedNames`.
    pub accepted: Value,
    /// The approval condition that is still to be written, if any.
    pub approval: Option<Approval>,
    /// Status of the `NamesAccepted` condition; `None` if the condition is not set.
    pub names: Option<bool>,
    /// Whether the `Established` condition is true.
    pub established: bool,
    /// Whether the CRD has a deletion timestamp.
    pub deleting: bool,
    /// Whether the CRD has the `customresourcecleanup` finalizer.
    pub finalizer: bool,
}

/// Index of CRDs, fed by the watch cache.
#[derive(Default)]
pub struct CrdIndex {
    definitions: BTreeMap<String, Arc<Definition>>,
    summaries: BTreeMap<String, Arc<Summary>>,
    /// By UID of the CRD.
    lives: HashMap<String, CrdState>,
    /// Change tokens by CRD name; cancelled when the CRD changes or is deleted.
    ended: HashMap<String, CancellationToken>,
    rows: Arc<Rows>,
    changed: bool,
}

/// State that a CRD keeps across updates, until it is deleted.
#[derive(Default)]
struct CrdState {
    /// Admits creates of instances until the CRD terminates.
    gate: Arc<Gate>,
    /// Revision from which the CRD is served; all its instances are newer.
    born: Revision,
}

impl CrdIndex {
    /// Returns the resources of all served CRDs.
    pub fn rows(&self) -> &Arc<Rows> {
        &self.rows
    }

    /// Returns the gate that creates of instances pass; `None` if the CRD is deleted.
    pub fn gate(&self, definition: &Definition) -> Option<Arc<Gate>> {
        self.lives.get(&definition.uid).map(|life| life.gate.clone())
    }

    /// Returns the revision from which the CRD is served; `None` if the CRD is deleted.
    pub fn born(&self, definition: &Definition) -> Option<Revision> {
        self.lives.get(&definition.uid).map(|life| life.born)
    }

    /// Whether the CRD's name now belongs to another CRD, or to a changed one.
    pub fn is_replaced(&self, definition: &Definition) -> bool {
        self.definitions.get(&definition.name).is_some_and(|known| !known.is_like(definition))
    }

    /// Returns a token that is cancelled when the CRD changes or is deleted.
    pub fn ended(&self, definition: &Definition) -> CancellationToken {
        let known = self.definitions.get(&definition.name).filter(|known| known.is_like(definition));
        let token = known.and_then(|known| self.ended.get(&known.name)).cloned();
        token.unwrap_or_else(|| {
            let over = CancellationToken::new();
            over.cancel();
            over
        })
    }

    /// Returns the summary of a CRD.
    pub fn summary(&self, name: &str) -> Option<Arc<Summary>> {
        self.summaries.get(name).cloned()
    }

    /// Returns the summaries of all CRDs.
    pub fn summaries(&self) -> Vec<Arc<Summary>> {
        self.summaries.values().cloned().collect()
    }

    /// Whether the index holds no state of any CRD.
    pub fn is_empty(&self) -> bool {
        let known = self.definitions.is_empty() && self.summaries.is_empty();
        known && self.lives.is_empty() && self.ended.is_empty() && self.rows.all().is_empty()
    }

    fn keep(&mut self, name: &str, object: &Value, (document, revision): (&Bytes, Revision)) {
        self.summaries.insert(name.to_owned(), Arc::new(Summary::of(name, object)));
        // An established CRD whose new names conflict stays served under its accepted names.
        let usable = ["NamesAccepted", "Established"].iter().any(|condition| is_true(object, condition));
        let known = self.definitions.get(name);
        if usable && known.is_some_and(|known| known.is_same(object)) {
            return;
        }
        match usable.then(|| Definition::new(object, document)).flatten() {
            Some(definition) => self.serve(name, definition, revision),
            None => self.drop(name),
        }
    }

    fn serve(&mut self, name: &str, definition: Definition, revision: Revision) {
        self.drop_other(name, &definition.uid);
        // Termination alone does not cancel the token: watches still receive the deletions of instances.
        let same = self.definitions.get(name).is_some_and(|known| known.is_like(&definition));
        if !same && let Some(before) = self.ended.insert(name.to_owned(), CancellationToken::new()) {
            before.cancel();
        }
        let life = self.lives.entry(definition.uid.clone());
        let life = life.or_insert_with(|| CrdState { born: revision, ..CrdState::default() });
        if definition.terminating {
            life.gate.close();
        }
        self.definitions.insert(name.to_owned(), Arc::new(definition));
        self.changed = true;
    }

    /// Removes a CRD of the same name that has another UID.
    fn drop_other(&mut self, name: &str, uid: &str) {
        if self.definitions.get(name).is_some_and(|known| known.uid != uid) {
            self.drop(name);
        }
    }

    fn drop(&mut self, name: &str) {
        if let Some(known) = self.definitions.remove(name) {
            self.changed = true;
            if let Some(life) = self.lives.remove(&known.uid) {
                life.gate.close();
            }
        }
        if let Some(ended) = self.ended.remove(name) {
            ended.cancel();
        }
    }
}

impl Indexer for CrdIndex {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        self.keep(place.name, object, (&object.to_string().into(), 0));
    }

    fn insert_item(&mut self, place: ObjectKey<'_>, object: &Value, item: &CachedItem) {
        self.keep(place.name, object, (&item.record.value, item.record.revision));
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.summaries.remove(place.name);
        self.drop(place.name);
    }

    fn clear(&mut self) {
        let names: Vec<String> = self.definitions.keys().cloned().collect();
        names.iter().for_each(|name| self.drop(name));
        self.summaries.clear();
        self.changed = true;
    }

    fn rebuild(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.rows = Arc::new(Rows::new(self.definitions.values(), self.rows.generation + 1));
        }
    }
}

impl Summary {
    fn of(name: &str, object: &Value) -> Self {
        const FINALIZER: &str = super::crd_status_controller::FINALIZER;
        Self {
            name: name.to_owned(),
            uid: meta::uid(object).to_owned(),
            group: meta::string_at(object, &["spec", "group"]).to_owned(),
            wanted: object["spec"]["names"].clone(),
            accepted: object["status"]["acceptedNames"].clone(),
            approval: Approval::of(object).filter(|approval| !approval.is_told(object)),
            names: find_condition(object, "NamesAccepted").map(|condition| condition["status"] == "True"),
            established: is_true(object, "Established"),
            deleting: meta::is_deleting(object),
            finalizer: meta::finalizers(object).any(|finalizer| finalizer == FINALIZER),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use serde_json::json;

    use super::*;

    fn definition(generation: u64) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let names = json!({"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"});
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"metadata": {"name": "boats.example.io", "uid": "u", "generation": generation},
            "spec": {"group": "example.io", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
            "status": {"acceptedNames": names, "conditions": [condition("NamesAccepted"), condition("Established")]}})
    }

    #[test]
    fn nothing_is_left_of_definitions_that_changed_or_went() {
        let place =
            ObjectKey { resource: super::super::definitions().unwrap(), namespace: "", name: "boats.example.io" };
        let mut served = CrdIndex::default();
        let mut before: Vec<Weak<Definition>> = Vec::new();
        for generation in 0..20 {
            served.insert_object(place, &definition(generation));
            served.rebuild();
            let row = served.rows().row("example.io", "v1", "boats").unwrap();
            let known = &served.definitions["boats.example.io"];
            assert!(!served.ended(known).is_cancelled() && row.kind == "Boat");
            before.push(Arc::downgrade(known));
        }
        assert_eq!(before.iter().filter(|known| known.upgrade().is_some()).count(), 1, "the last is there");
        served.insert_object(place, &definition(19));
        served.rebuild();
        assert_eq!(served.rows().generation, 20, "what is the same makes no new rows");
        served.remove_object(place);
        served.rebuild();
        assert!(before.iter().all(|known| known.upgrade().is_none()));
        assert!(served.is_empty());
    }
}
