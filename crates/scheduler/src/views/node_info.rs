//! The scheduler's view of a node, and the node with its pods.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use client::CachedView;
use k8s_openapi::api::core::v1::Node;

use crate::{
    intern::intern,
    views::host_ports::HostPort,
    views::labels::LabelSet,
    views::pod_info::{PodClass, PodInfo},
    views::resources::Resource,
    views::taints::NodeTaint,
};

/// A node without its pods.
#[derive(Debug, Default)]
pub struct NodeView {
    /// The node's name.
    pub name: Arc<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    /// The node's labels.
    pub labels: LabelSet,
    /// Taints with a known effect.
    pub taints: Box<[NodeTaint]>,
    /// `spec.unschedulable`.
    pub is_unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: Resource,
    /// Names and sizes of the images on the node.
    pub images: Box<[(Arc<str>, i64)]>,
    /// Features that the node declares, sorted.
    pub declared_features: Box<[Arc<str>]>,
    /// The whole object, kept for extenders only.
    pub object: Option<Arc<Node>>,
}

impl NodeView {
    /// A node of which only the name is known.
    pub fn with_name(name: Arc<str>) -> Self {
        Self { name, ..Self::default() }
    }

    /// Reads a node.
    pub fn from_node(node: &Node) -> Self {
        let (meta, spec, status) = (&node.metadata, node.spec.as_ref(), node.status.as_ref());
        let text = |text: Option<&String>| text.map_or("", String::as_str).into();
        let images = status.into_iter().flat_map(|status| status.images.iter().flatten());
        let names = images.flat_map(|image| {
            let size = image.size_bytes.unwrap_or(0);
            image.names.iter().flatten().map(move |name| (intern(name), size))
        });
        let features = status.into_iter().flat_map(|status| status.declared_features.iter().flatten());
        let mut declared_features: Vec<Arc<str>> = features.map(|feature| intern(feature)).collect();
        declared_features.sort();
        Self {
            name: intern(meta.name.as_deref().unwrap_or("")),
            uid: text(meta.uid.as_ref()),
            resource_version: text(meta.resource_version.as_ref()),
            labels: LabelSet::from_map(meta.labels.as_ref()),
            taints: spec
                .into_iter()
                .flat_map(|spec| spec.taints.iter().flatten())
                .filter_map(NodeTaint::from_taint)
                .collect(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable) == Some(true),
            allocatable: Resource::from_list(status.and_then(|status| status.allocatable.as_ref())),
            images: names.collect(),
            declared_features: declared_features.into(),
            object: None,
        }
    }

    /// Region and zone of the node, as the order of nodes uses them; empty if it has neither.
    pub fn zone_key(&self) -> String {
        let label = |stable: &str, beta: &str| self.labels.get(beta).or_else(|| self.labels.get(stable)).cloned();
        let region = label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");
        let zone = label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
        match (region, zone) {
            (None, None) => String::new(),
            (region, zone) => {
                format!("{}:\0:{}", region.as_deref().unwrap_or(""), zone.as_deref().unwrap_or(""))
            }
        }
    }
}

impl CachedView for NodeView {
    type Object = Node;

    fn from_object(object: Node) -> Self {
        let mut view = Self::from_node(&object);
        if crate::keeps_objects() {
            view.object = Some(Arc::new(object));
        }
        view
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        ("", &self.name)
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// An image that nodes have.
#[derive(Debug)]
pub struct ImageState {
    /// Bytes.
    pub size: i64,
    /// Number of nodes that have it.
    pub nodes: AtomicI64,
}

/// Pods of one class on a node.
#[derive(Clone, Debug)]
pub struct ClassCount {
    /// The class.
    pub class: Arc<PodClass>,
    /// Number of pods.
    pub pods: u32,
    /// Number of them that are being deleted.
    pub deleting: u32,
}

/// A node and its pods. Invariant: `requested`, the non-zero sums, `classes` and `used_ports` are those of `pods`.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The node.
    pub node: Arc<NodeView>,
    /// Bound and assumed pods.
    pub pods: Vec<Arc<PodInfo>>,
    /// The pods by class.
    pub classes: Vec<ClassCount>,
    /// Sum of the pods' requests.
    pub requested: Resource,
    /// CPU for scoring.
    pub non_zero_milli_cpu: i64,
    /// Memory for scoring.
    pub non_zero_memory: i64,
    /// Ports that pods occupy.
    pub used_ports: Vec<HostPort>,
    /// Number of pods with inter-pod affinity.
    pub affinity_pods: u32,
    /// Number of pods with required anti-affinity.
    pub anti_affinity_pods: u32,
    /// Images of the node, sorted by name.
    pub images: Arc<[(Arc<str>, Arc<ImageState>)]>,
    /// Increases with every change of any node.
    pub generation: i64,
}

impl NodeInfo {
    /// Creates a node without pods.
    pub fn new(node: Arc<NodeView>) -> Self {
        Self { node, ..Self::default() }
    }

    /// The node's name.
    pub fn name(&self) -> &Arc<str> {
        &self.node.name
    }

    /// Adds a pod.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.count_pod(&pod, 1);
        self.used_ports.extend_from_slice(&pod.class.host_ports);
        self.pods.push(pod);
    }

    /// Removes a pod by uid; returns whether it was there.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(found) = self.pods.iter().position(|pod| pod.uid.as_ref() == uid) else { return false };
        let pod = self.pods.swap_remove(found);
        self.count_pod(&pod, -1);
        for port in &pod.class.host_ports {
            if let Some(used) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(used);
            }
        }
        true
    }

    /// Returns an image of the node.
    pub fn image(&self, name: &str) -> Option<&ImageState> {
        let found = self.images.binary_search_by(|(known, _)| known.as_ref().cmp(name)).ok()?;
        self.images.get(found).map(|(_, state)| state.as_ref())
    }

    fn count_pod(&mut self, pod: &PodInfo, sign: i64) {
        let requests = &pod.class.requests;
        self.requested.add_scaled(&requests.allocated, sign);
        self.non_zero_milli_cpu += sign * requests.non_zero_milli_cpu;
        self.non_zero_memory += sign * requests.non_zero_memory;
        let step = |count: &mut u32| *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) };
        if pod.class.affinity.is_present {
            step(&mut self.affinity_pods);
        }
        if !pod.class.affinity.required_anti.is_empty() {
            step(&mut self.anti_affinity_pods);
        }
        let found = self.classes.iter().position(|count| Arc::ptr_eq(&count.class, &pod.class));
        let found = found.unwrap_or_else(|| {
            self.classes.push(ClassCount { class: pod.class.clone(), pods: 0, deleting: 0 });
            self.classes.len() - 1
        });
        let count = &mut self.classes[found];
        step(&mut count.pods);
        if pod.is_deleting {
            step(&mut count.deleting);
        }
        if count.pods == 0 {
            self.classes.swap_remove(found);
        }
    }
}

/// Returns the next generation of node infos.
pub fn next_generation() -> i64 {
    static GENERATION: AtomicI64 = AtomicI64::new(0);
    GENERATION.fetch_add(1, Ordering::Relaxed) + 1
}
