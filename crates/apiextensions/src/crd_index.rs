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

use super::{ServedResources, api_approval::ApiApproval, create_gate::CreateGate, find_condition, is_condition_true};
use crate::CrdInfo;

/// The finalizer that keeps a CRD until all its instances are deleted.
pub const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The state of a CRD that the CRD status controller reconciles from.
#[derive(Debug)]
pub struct CrdSummary {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.group`.
    pub group: String,
    /// The requested names, `spec.names`.
    pub requested: Value,
    /// `status.acceptedNames`.
    pub accepted: Value,
    /// The approval condition that is still to be written, if any.
    pub approval: Option<ApiApproval>,
    /// Status of the `NamesAccepted` condition; `None` if the condition is not set.
    pub names_accepted: Option<bool>,
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
    crds: BTreeMap<String, Arc<CrdInfo>>,
    summaries: BTreeMap<String, Arc<CrdSummary>>,
    /// By UID of the CRD.
    gates: HashMap<String, Arc<CreateGate>>,
    /// Change tokens by CRD name; cancelled when the CRD changes or is deleted.
    change_tokens: HashMap<String, CancellationToken>,
    served: Arc<ServedResources>,
    changed: bool,
}

impl CrdIndex {
    /// Returns the resources of all served CRDs.
    pub fn served_resources(&self) -> &Arc<ServedResources> {
        &self.served
    }

    /// Returns the gate that creates of instances pass; `None` if the CRD is deleted.
    pub fn create_gate(&self, crd: &CrdInfo) -> Option<Arc<CreateGate>> {
        self.gates.get(&crd.uid).cloned()
    }

    /// Whether the CRD's name now belongs to another CRD, or to a changed one.
    pub fn is_replaced(&self, crd: &CrdInfo) -> bool {
        self.crds.get(&crd.name).is_some_and(|known| !known.serves_same_resources(crd))
    }

    /// Returns a token that is cancelled when the CRD changes or is deleted.
    pub fn change_token(&self, crd: &CrdInfo) -> CancellationToken {
        let known = self.crds.get(&crd.name).filter(|known| known.serves_same_resources(crd));
        let token = known.and_then(|known| self.change_tokens.get(&known.name)).cloned();
        token.unwrap_or_else(|| {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            cancelled
        })
    }

    /// Returns the summary of a CRD.
    pub fn summary(&self, name: &str) -> Option<Arc<CrdSummary>> {
        self.summaries.get(name).cloned()
    }

    /// Returns the summaries of all CRDs.
    pub fn summaries(&self) -> Vec<Arc<CrdSummary>> {
        self.summaries.values().cloned().collect()
    }

    /// Whether the index holds no state of any CRD.
    pub fn is_empty(&self) -> bool {
        let known = self.crds.is_empty() && self.summaries.is_empty();
        known && self.gates.is_empty() && self.change_tokens.is_empty() && self.served.all_resources().is_empty()
    }

    fn insert_crd(&mut self, name: &str, object: &Value, (document, revision): (&Bytes, Revision)) {
        self.summaries.insert(name.to_owned(), Arc::new(CrdSummary::from_object(name, object)));
        // An established CRD whose new names conflict stays served under its accepted names.
        let usable = ["NamesAccepted", "Established"].iter().any(|condition| is_condition_true(object, condition));
        let known = self.crds.get(name);
        if usable && known.is_some_and(|known| known.matches_stored(object)) {
            return;
        }
        match usable.then(|| CrdInfo::new(object, document)).flatten() {
            Some(crd) => self.serve_crd(name, crd, revision),
            None => self.remove_crd(name),
        }
    }

    fn serve_crd(&mut self, name: &str, mut crd: CrdInfo, revision: Revision) {
        self.remove_other_uid(name, &crd.uid);
        // Termination alone does not cancel the token: watches still receive the deletions of instances.
        let same = self.crds.get(name).is_some_and(|known| known.serves_same_resources(&crd));
        if !same && let Some(before) = self.change_tokens.insert(name.to_owned(), CancellationToken::new()) {
            before.cancel();
        }
        crd.served_since = self.crds.get(name).map_or(revision, |known| known.served_since);
        let gate = self.gates.entry(crd.uid.clone()).or_default();
        if crd.terminating {
            gate.close();
        }
        self.crds.insert(name.to_owned(), Arc::new(crd));
        self.changed = true;
    }

    /// Removes a CRD of the same name that has another UID.
    fn remove_other_uid(&mut self, name: &str, uid: &str) {
        if self.crds.get(name).is_some_and(|known| known.uid != uid) {
            self.remove_crd(name);
        }
    }

    fn remove_crd(&mut self, name: &str) {
        if let Some(known) = self.crds.remove(name) {
            self.changed = true;
            if let Some(gate) = self.gates.remove(&known.uid) {
                gate.close();
            }
        }
        if let Some(token) = self.change_tokens.remove(name) {
            token.cancel();
        }
    }
}

impl Indexer for CrdIndex {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        self.insert_crd(key.name, object, (&object.to_string().into(), 0));
    }

    fn insert_item(&mut self, key: ObjectKey<'_>, object: &Value, item: &CachedItem) {
        self.insert_crd(key.name, object, (&item.record.value, item.record.revision));
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        self.summaries.remove(key.name);
        self.remove_crd(key.name);
    }

    fn clear(&mut self) {
        let names: Vec<String> = self.crds.keys().cloned().collect();
        names.iter().for_each(|name| self.remove_crd(name));
        self.summaries.clear();
        self.changed = true;
    }

    fn rebuild(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.served = Arc::new(ServedResources::new(self.crds.values(), self.served.generation + 1));
        }
    }
}

impl CrdSummary {
    fn from_object(name: &str, object: &Value) -> Self {
        Self {
            name: name.to_owned(),
            uid: meta::uid(object).to_owned(),
            group: meta::string_at(object, &["spec", "group"]).to_owned(),
            requested: object["spec"]["names"].clone(),
            accepted: object["status"]["acceptedNames"].clone(),
            approval: ApiApproval::compute(object).filter(|approval| !approval.is_recorded(object)),
            names_accepted: find_condition(object, "NamesAccepted").map(|condition| condition["status"] == "True"),
            established: is_condition_true(object, "Established"),
            deleting: meta::is_deleting(object),
            finalizer: meta::finalizers(object).any(|finalizer| finalizer == CRD_FINALIZER),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use serde_json::json;

    use super::*;

    fn crd_of_generation(generation: u64) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let names = json!({"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"});
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"metadata": {"name": "boats.example.io", "uid": "u", "generation": generation},
            "spec": {"group": "example.io", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
            "status": {"acceptedNames": names, "conditions": [condition("NamesAccepted"), condition("Established")]}})
    }

    #[test]
    fn changed_and_deleted_crds_leave_no_state() {
        let key =
            ObjectKey { resource: super::super::crd_resource().unwrap(), namespace: "", name: "boats.example.io" };
        let mut served = CrdIndex::default();
        let mut before: Vec<Weak<CrdInfo>> = Vec::new();
        for generation in 0..20 {
            served.insert_object(key, &crd_of_generation(generation));
            served.rebuild();
            let resource = served.served_resources().resource("example.io", "v1", "boats").unwrap();
            let known = &served.crds["boats.example.io"];
            assert!(!served.change_token(known).is_cancelled() && resource.kind == "Boat");
            before.push(Arc::downgrade(known));
        }
        assert_eq!(before.iter().filter(|known| known.upgrade().is_some()).count(), 1, "the last is there");
        served.insert_object(key, &crd_of_generation(19));
        served.rebuild();
        assert_eq!(served.served_resources().generation, 20, "what is the same makes no new rows");
        served.remove_object(key);
        served.rebuild();
        assert!(before.iter().all(|known| known.upgrade().is_none()));
        assert!(served.is_empty());
    }

    #[test]
    fn deleted_crd_keeps_the_revision_from_which_it_was_served() {
        let mut served = CrdIndex::default();
        let mut serve = |generation, revision| {
            let object = crd_of_generation(generation);
            served.insert_crd("boats.example.io", &object, (&object.to_string().into(), revision));
            served.crds["boats.example.io"].clone()
        };
        let (created, changed) = (serve(1, 5), serve(2, 9));
        served.remove_crd("boats.example.io");
        assert_eq!((created.served_since, changed.served_since), (5, 5));
    }
}
