//! Results of filters and scores that equal pods share, by class and node.
//!
//! A result is used again as long as the node has not changed, by its generation. Only plug-ins whose result depends on the
//! class and the node alone take part, so what is used again is what would be computed again.

use std::sync::Arc;

use super::status::Status;
use crate::{
    snapshot::Snapshot,
    views::{node_info::NodeInfo, pod_info::PodClass},
};

/// Number of classes whose results are kept.
const CLASSES: usize = 8;
/// The generation of a node that was not tried; nodes begin with 1.
const NEVER: i64 = 0;

/// Results of some classes, the last used first.
#[derive(Default)]
pub struct ClassResultCache {
    entries: Vec<ClassResults>,
}

/// Identity of results: the profile, the class, and the filters and scores that take part.
#[derive(Clone, PartialEq, Eq)]
pub struct ClassResultKey {
    /// The profile.
    pub profile: Arc<str>,
    /// Number of filters at the beginning of the chain that take part.
    pub filters: usize,
    /// Number of scores of a node.
    pub scores: usize,
}

/// Results of one class by the position of the node.
pub struct ClassResults {
    class: Arc<PodClass>,
    key: ClassResultKey,
    /// The order of the snapshot that positions refer to.
    order: u64,
    filtered: Vec<(i64, Option<Status>)>,
    scored: Vec<i64>,
    scores: Vec<i64>,
}

impl ClassResultCache {
    /// Returns the results of a class, empty ones if there are none for this order of nodes.
    pub fn results(&mut self, class: &Arc<PodClass>, key: ClassResultKey, snapshot: &Snapshot) -> &mut ClassResults {
        let found = self.entries.iter().position(|entry| Arc::ptr_eq(&entry.class, class) && entry.key == key);
        let usable = found.map(|place| self.entries.remove(place)).filter(|entry| entry.order == snapshot.order());
        self.entries.truncate(CLASSES - 1);
        let nodes = snapshot.nodes().len();
        let entry = usable.unwrap_or_else(|| ClassResults {
            class: class.clone(),
            order: snapshot.order(),
            filtered: vec![(NEVER, None); nodes],
            scored: vec![NEVER; nodes],
            scores: vec![0; nodes * key.scores],
            key,
        });
        self.entries.insert(0, entry);
        &mut self.entries[0]
    }
}

impl ClassResults {
    /// Returns the result of the filters on a node, which `filter` computes if the node has changed.
    pub fn filter(
        &mut self,
        position: usize,
        node: &NodeInfo,
        filter: impl FnOnce() -> Result<(), Status>,
    ) -> Result<(), Status> {
        let Some((generation, status)) = self.filtered.get_mut(position) else { return filter() };
        if *generation != node.generation || node.generation == NEVER {
            let result = filter();
            if let Err(error) = &result
                && !error.is_rejected()
            {
                return result;
            }
            (*generation, *status) = (node.generation, result.err());
        }
        status.as_ref().map_or(Ok(()), |status| Err(status.clone()))
    }

    /// Returns the scores of a node, which `score` writes if the node has changed.
    pub fn scores(
        &mut self,
        position: usize,
        node: &NodeInfo,
        score: impl FnOnce(&mut [i64]) -> Result<(), Status>,
    ) -> Result<&[i64], Status> {
        let range = position * self.key.scores..(position + 1) * self.key.scores;
        let unknown = || Status::error("the node is not in the snapshot");
        let generation = self.scored.get_mut(position).ok_or_else(unknown)?;
        let scores = self.scores.get_mut(range).ok_or_else(unknown)?;
        if *generation != node.generation || node.generation == NEVER {
            *generation = NEVER;
            score(scores)?;
            *generation = node.generation;
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(generation: i64) -> NodeInfo {
        NodeInfo { generation, ..NodeInfo::default() }
    }

    #[test]
    fn results_are_computed_once_per_generation() {
        let snapshot = Snapshot::from_nodes(vec![Arc::new(node(1))]);
        let (class, mut cache, mut computed) = (Arc::new(PodClass::default()), ClassResultCache::default(), 0);
        let key = ClassResultKey { profile: "p".into(), filters: 1, scores: 2 };
        for generation in [1, 1, 2, 2] {
            let results = cache.results(&class, key.clone(), &snapshot);
            let result = results.filter(0, &node(generation), || {
                computed += 1;
                Err(Status::unschedulable("no"))
            });
            assert!(result.is_err());
            let scores = results.scores(0, &node(generation), |scores| {
                scores.fill(generation);
                Ok(())
            });
            assert_eq!(scores.unwrap(), [generation, generation]);
        }
        assert_eq!(computed, 2);
        let other = Snapshot::from_nodes(vec![Arc::new(node(2))]);
        let results = cache.results(&class, key, &other);
        assert!(results.filter(0, &node(2), || Ok(())).is_ok());
    }

    #[test]
    fn errors_are_not_kept() {
        let snapshot = Snapshot::from_nodes(vec![Arc::new(node(1))]);
        let mut cache = ClassResultCache::default();
        let key = ClassResultKey { profile: "p".into(), filters: 1, scores: 0 };
        let results = cache.results(&Arc::default(), key, &snapshot);
        assert!(results.filter(0, &node(1), || Err(Status::error("broken"))).is_err());
        assert!(results.filter(0, &node(1), || Ok(())).is_ok());
    }
}
