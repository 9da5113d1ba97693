//! The scheduler cache: nodes with their bound and assumed pods, from which snapshots are made.
//!
//! A pod that was assigned a node is *assumed* until the informer delivers it as bound, so that the next cycle sees it.
//! Invariant: a pod is on at most one node, the one in `pods`.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use crate::{
    node_tree::NodeTree,
    pod_groups::PodGroupStates,
    snapshot::Snapshot,
    views::node_info::{ImageState, NodeInfo, NodeView, next_generation},
    views::pod_info::PodInfo,
};

/// Nodes and pods.
#[derive(Default)]
pub struct SchedulerCache {
    nodes: HashMap<Arc<str>, CachedNode>,
    tree: NodeTree,
    pods: HashMap<Arc<str>, CachedPod>,
    images: HashMap<Arc<str>, Arc<ImageState>>,
    /// Number of assumed pods.
    assumed: usize,
    /// Names of nodes that changed since the last snapshot.
    changed: HashSet<Arc<str>>,
    /// Whether nodes came, went or changed their zone since the last snapshot.
    order_changed: bool,
    pod_groups: Arc<PodGroupStates>,
}

struct CachedNode {
    info: Arc<NodeInfo>,
    /// Pods of a node that was not observed yet or was deleted are kept.
    exists: bool,
}

struct CachedPod {
    pod: Arc<PodInfo>,
    is_assumed: bool,
}

/// A pod could not be assumed because the cache has it.
#[derive(Debug, thiserror::Error)]
#[error("pod {uid}({key}) is in the cache, so can't be assumed")]
pub struct AlreadyCached {
    uid: Arc<str>,
    key: String,
}

impl SchedulerCache {
    /// The pods of each pod group, which follow the pods of this cache.
    pub fn pod_groups(&self) -> &Arc<PodGroupStates> {
        &self.pod_groups
    }

    /// Brings a snapshot up to date.
    pub fn update_snapshot(&mut self, snapshot: &mut Snapshot) {
        if std::mem::take(&mut self.order_changed) {
            let names = self.tree.list();
            let nodes = names.iter().filter_map(|name| self.nodes.get(name)).map(|node| node.info.clone());
            *snapshot = Snapshot::from_nodes(nodes.collect());
            self.changed.clear();
            return;
        }
        let changed = std::mem::take(&mut self.changed);
        let nodes = changed.iter().filter_map(|name| self.nodes.get(name)).filter(|node| node.exists);
        snapshot.replace_nodes(nodes.map(|node| node.info.clone()));
        // The set keeps its capacity.
        self.changed = changed;
        self.changed.clear();
    }

    /// Makes the next snapshot a whole one.
    pub fn request_full_snapshot(&mut self) {
        self.order_changed = true;
    }

    /// Adds or updates a node and returns it with its pods.
    pub fn set_node(&mut self, view: Arc<NodeView>) -> Arc<NodeInfo> {
        self.order_changed |= self.tree.set_node(&view);
        let name = view.name.clone();
        self.release_images(&name);
        let images = self.claim_images(&view);
        self.change_node(&name, |node| {
            node.exists = true;
            let info = Arc::make_mut(&mut node.info);
            (info.node, info.images) = (view, images);
        });
        self.nodes.get(&name).map(|node| node.info.clone()).unwrap_or_default()
    }

    /// Removes a node; its pods stay until they are deleted.
    pub fn remove_node(&mut self, name: &Arc<str>) {
        self.order_changed |= self.tree.remove_node(name);
        self.release_images(name);
        if self.nodes.contains_key(name) {
            self.change_node(name, |node| {
                node.exists = false;
                Arc::make_mut(&mut node.info).images = Arc::default();
            });
            self.drop_empty_node(name);
        }
    }

    /// Assumes a pod on the node of its view.
    pub fn assume_pod(&mut self, pod: Arc<PodInfo>) -> Result<(), AlreadyCached> {
        if self.pods.contains_key(&pod.uid) {
            return Err(AlreadyCached { uid: pod.uid.clone(), key: pod.key() });
        }
        self.pod_groups.assume_pod(&pod);
        self.insert_pod(pod, true);
        Ok(())
    }

    /// Removes an assumed pod that could not be bound; a bound one stays.
    pub fn forget_pod(&mut self, uid: &str) {
        if let Some(assumed) = self.pods.get(uid).filter(|cached| cached.is_assumed).map(|cached| cached.pod.clone()) {
            self.release_pod(uid);
            self.pod_groups.forget_pod(&assumed);
        }
    }

    /// Adds or updates a bound pod; confirms it if it was assumed.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        self.release_pod(&pod.uid);
        self.pod_groups.set_pod(&pod);
        self.insert_pod(pod, false);
    }

    /// Removes a pod that was deleted or has ended.
    pub fn remove_pod(&mut self, pod: &PodInfo) {
        self.release_pod(&pod.uid);
        self.pod_groups.remove_pod(pod);
    }

    /// Whether the pod is assumed and not observed as bound yet.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|cached| cached.is_assumed)
    }

    /// Returns a pod as the cache has it.
    pub fn pod(&self, uid: &str) -> Option<Arc<PodInfo>> {
        self.pods.get(uid).map(|cached| cached.pod.clone())
    }

    /// Numbers of nodes, pods and assumed pods.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.tree.len(), self.pods.len(), self.assumed)
    }

    /// Takes a pod off its node.
    fn release_pod(&mut self, uid: &str) {
        let Some(cached) = self.pods.remove(uid) else { return };
        self.assumed -= usize::from(cached.is_assumed);
        let Some(name) = cached.pod.node_name.clone() else { return };
        self.change_node(&name, |node| {
            Arc::make_mut(&mut node.info).remove_pod(uid);
        });
        self.drop_empty_node(&name);
    }

    fn insert_pod(&mut self, pod: Arc<PodInfo>, is_assumed: bool) {
        let Some(name) = pod.node_name.clone() else { return };
        self.assumed += usize::from(is_assumed);
        self.pods.insert(pod.uid.clone(), CachedPod { pod: pod.clone(), is_assumed });
        self.change_node(&name, |node| Arc::make_mut(&mut node.info).add_pod(pod));
    }

    fn change_node(&mut self, name: &Arc<str>, change: impl FnOnce(&mut CachedNode)) {
        let node = self.nodes.entry(name.clone()).or_insert_with(|| {
            let view = Arc::new(NodeView::with_name(name.clone()));
            CachedNode { info: Arc::new(NodeInfo::new(view)), exists: false }
        });
        change(node);
        Arc::make_mut(&mut node.info).generation = next_generation();
        self.changed.insert(name.clone());
    }

    fn drop_empty_node(&mut self, name: &Arc<str>) {
        if self.nodes.get(name).is_some_and(|node| !node.exists && node.info.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }

    fn claim_images(&mut self, view: &NodeView) -> Arc<[(Arc<str>, Arc<ImageState>)]> {
        let mut images: Vec<_> = view
            .images
            .iter()
            .map(|(name, size)| {
                let state = self.images.entry(name.clone());
                let state = state.or_insert_with(|| Arc::new(ImageState { size: *size, nodes: AtomicI64::new(0) }));
                (name.clone(), state.clone())
            })
            .collect();
        images.sort_by(|(a, _), (b, _)| a.cmp(b));
        images.dedup_by(|(a, _), (b, _)| a == b);
        images.iter().for_each(|(_, state)| {
            state.nodes.fetch_add(1, Ordering::Relaxed);
        });
        images.into()
    }

    fn release_images(&mut self, name: &Arc<str>) {
        let Some(node) = self.nodes.get(name) else { return };
        for (image, state) in node.info.images.iter() {
            if state.nodes.fetch_sub(1, Ordering::Relaxed) <= 1 {
                self.images.remove(image);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, cpu: &str) -> Arc<PodInfo> {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": spec});
        Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap()))
    }

    fn node(name: &str) -> Arc<NodeView> {
        let images = json!([{"names": ["nginx:1"], "sizeBytes": 5}]);
        let node = json!({"metadata": {"name": name}, "status": {"images": images}});
        Arc::new(NodeView::from_node(&serde_json::from_value(node).unwrap()))
    }

    /// Updates the snapshot and renders it as `name=milli-cpu`.
    fn check(cache: &mut SchedulerCache, snapshot: &mut Snapshot, expected: &str) {
        cache.update_snapshot(snapshot);
        let nodes = snapshot.nodes().iter().map(|info| format!("{}={}", info.name(), info.requested.milli_cpu));
        assert_eq!(nodes.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn snapshot_follows_nodes_and_pods() {
        let (mut cache, mut snapshot) = (SchedulerCache::default(), Snapshot::default());
        cache.set_pod(pod("1", "a", "1"));
        check(&mut cache, &mut snapshot, "");
        cache.set_node(node("a"));
        cache.set_node(node("b"));
        check(&mut cache, &mut snapshot, "a=1000 b=0");
        cache.assume_pod(pod("2", "b", "2")).unwrap();
        assert!(cache.assume_pod(pod("2", "b", "2")).is_err() && cache.is_assumed("2"));
        check(&mut cache, &mut snapshot, "a=1000 b=2000");
        cache.forget_pod("2");
        cache.forget_pod("1");
        check(&mut cache, &mut snapshot, "a=1000 b=0");
        cache.set_pod(pod("1", "b", "3"));
        check(&mut cache, &mut snapshot, "a=0 b=3000");
        cache.remove_node(&"b".into());
        check(&mut cache, &mut snapshot, "a=0");
        cache.set_node(node("b"));
        check(&mut cache, &mut snapshot, "a=0 b=3000");
        cache.remove_pod(&pod("1", "b", "3"));
        check(&mut cache, &mut snapshot, "a=0 b=0");
    }

    #[test]
    fn images_count_their_nodes() {
        let mut cache = SchedulerCache::default();
        let first = cache.set_node(node("a"));
        cache.set_node(node("b"));
        cache.set_node(node("b"));
        let count = || first.image("nginx:1").map(|image| image.nodes.load(Ordering::Relaxed));
        assert_eq!(count(), Some(2));
        cache.remove_node(&"b".into());
        assert_eq!(count(), Some(1));
    }

    #[test]
    fn snapshot_is_not_changed_by_later_changes() {
        let (mut cache, mut snapshot) = (SchedulerCache::default(), Snapshot::default());
        cache.set_node(node("a"));
        cache.update_snapshot(&mut snapshot);
        cache.set_pod(pod("1", "a", "1"));
        assert!(snapshot.nodes()[0].pods.is_empty());
    }
}
