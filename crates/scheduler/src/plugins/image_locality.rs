//! ImageLocality: favours nodes that have the pod's images, the more the more nodes have them.

use std::sync::atomic::Ordering;

use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, MAX_NODE_SCORE, Plugin, ScorePlugin},
        status::Status,
    },
    views::node_info::NodeInfo,
    views::pod_info::normalize_image_name,
    views::pod_volumes::PodVolume,
};

const MIB: i64 = 1024 * 1024;
/// Size below which images do not count.
const MIN_THRESHOLD: i64 = 23 * MIB;
/// Size per container above which more does not count.
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * MIB;

/// The plug-in.
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }
}

impl ScorePlugin for ImageLocality {
    fn score(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let class = &cycle.pod.class;
        let containers = class.images.len() as i64;
        if node.images.is_empty() || containers == 0 {
            return Ok(0);
        }
        let nodes = cycle.snapshot.nodes().len() as f64;
        let scaled_size = |name: &str| {
            let image = node.image(name)?;
            let spread = image.nodes.load(Ordering::Relaxed) as f64 / nodes;
            Some((image.size as f64 * spread) as i64)
        };
        let of_containers: i64 = class.images.iter().filter_map(|name| scaled_size(name)).sum();
        let volumes = class.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Image(reference) => scaled_size(&normalize_image_name(reference)),
            _ => None,
        });
        let greatest = MAX_CONTAINER_THRESHOLD * containers;
        let sum = (of_containers + volumes.sum::<i64>()).clamp(MIN_THRESHOLD, greatest);
        Ok(MAX_NODE_SCORE * (sum - MIN_THRESHOLD) / (greatest - MIN_THRESHOLD))
    }
}
