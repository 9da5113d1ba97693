//! Scores by the share of a node's resources that is requested: least, most, by a shape, and balanced.

use crate::{
    config::plugin_args::{ScoringStrategy, ScoringStrategyType, UtilizationShapePoint},
    framework::extension_points::MAX_NODE_SCORE,
    views::node_info::NodeInfo,
    views::pod_requests::PodRequests,
    views::resources::{Resource, is_scalar_resource},
};

/// The greatest score in a shape.
const MAX_SHAPE_SCORE: i64 = 10;

/// A resource with the pod's request, and how a node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceShare {
    /// With the pod.
    pub requested: i64,
    /// Without the pod.
    pub allocated: i64,
    /// Zero if the resource does not count.
    pub allocatable: i64,
    /// The weight of the resource.
    pub weight: i64,
}

/// Returns a pod's request for a resource, as `NodeResourcesFit` scores it.
pub fn fit_request(requests: &PodRequests, name: &str) -> i64 {
    match name {
        "cpu" => requests.fit_score_milli_cpu,
        "memory" => requests.fit_score_memory,
        name => amount(&requests.of_containers, name),
    }
}

/// Returns the amount of a resource.
pub fn amount(resource: &Resource, name: &str) -> i64 {
    match name {
        "cpu" => resource.milli_cpu,
        "memory" => resource.memory,
        "ephemeral-storage" => resource.ephemeral_storage,
        name => resource.scalar(name),
    }
}

/// Returns a node's share of a resource for a pod that requests `request`; `by_requests` leaves out default requests.
pub fn resource_share(node: &NodeInfo, name: &str, request: i64, weight: i64, by_requests: bool) -> ResourceShare {
    let absent = ResourceShare { requested: 0, allocated: 0, allocatable: 0, weight };
    if request == 0 && is_scalar_resource(name) {
        return absent;
    }
    let allocated = match name {
        "cpu" if !by_requests => node.non_zero_milli_cpu,
        "memory" if !by_requests => node.non_zero_memory,
        name => amount(&node.requested, name),
    };
    match amount(&node.node.allocatable, name) {
        0 => absent,
        allocatable => ResourceShare { requested: allocated + request, allocated, allocatable, weight },
    }
}

/// Scores by a strategy of `NodeResourcesFit`.
pub fn score_by_strategy(strategy: &ScoringStrategy, shares: &[ResourceShare]) -> i64 {
    match strategy.type_ {
        ScoringStrategyType::LeastAllocated => weighted_mean(shares, |share| match share.requested {
            requested if requested > share.allocatable => 0,
            requested => (share.allocatable - requested) * MAX_NODE_SCORE / share.allocatable,
        }),
        ScoringStrategyType::MostAllocated => {
            weighted_mean(shares, |share| share.requested.min(share.allocatable) * MAX_NODE_SCORE / share.allocatable)
        }
        ScoringStrategyType::RequestedToCapacityRatio => {
            let shape = strategy.requested_to_capacity_ratio.as_ref().map_or(&[][..], |ratio| &ratio.shape);
            ratio_score(shape, shares)
        }
    }
}

fn weighted_mean(shares: &[ResourceShare], score: impl Fn(&ResourceShare) -> i64) -> i64 {
    let counted = shares.iter().filter(|share| share.allocatable != 0);
    let (sum, weights) =
        counted.fold((0, 0), |(sum, weights), share| (sum + score(share) * share.weight, weights + share.weight));
    if weights == 0 { 0 } else { sum / weights }
}

fn ratio_score(shape: &[UtilizationShapePoint], shares: &[ResourceShare]) -> i64 {
    const MAX_UTILIZATION: i64 = 100;
    let score = |share: &ResourceShare| {
        if share.requested > share.allocatable {
            return shape_score(shape, MAX_UTILIZATION);
        }
        shape_score(shape, MAX_UTILIZATION * share.requested / share.allocatable)
    };
    let counted = shares.iter().filter(|share| share.allocatable != 0).map(|share| (score(share), share.weight));
    let positive = counted.filter(|(score, _)| *score > 0);
    let (sum, weights) =
        positive.fold((0, 0), |(sum, weights), (score, weight)| (sum + score * weight, weights + weight));
    if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
}

/// Evaluates a broken linear function, scaled to [`MAX_NODE_SCORE`].
pub fn shape_score(shape: &[UtilizationShapePoint], utilization: i64) -> i64 {
    let scale = MAX_NODE_SCORE / MAX_SHAPE_SCORE;
    let point = |point: &UtilizationShapePoint| (i64::from(point.utilization), i64::from(point.score) * scale);
    let mut before: Option<(i64, i64)> = None;
    for (at, score) in shape.iter().map(point) {
        if utilization <= at {
            return match before {
                None => score,
                Some((from, low)) => low + (score - low) * (utilization - from) / (at - from).max(1),
            };
        }
        before = Some((at, score));
    }
    before.map_or(0, |(_, score)| score)
}

/// Scores how much better balanced the node's resources are with the pod than without.
pub fn balanced_score(shares: &[ResourceShare]) -> i64 {
    let with_pod = balance(shares, |share| share.requested);
    let without_pod = balance(shares, |share| share.allocated);
    MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + with_pod - without_pod) / 2
}

fn balance(shares: &[ResourceShare], used: impl Fn(&ResourceShare) -> i64) -> i64 {
    let counted = shares.iter().filter(|share| share.allocatable != 0);
    let fractions: Vec<f64> = counted.map(|share| (used(share) as f64 / share.allocatable as f64).min(1.0)).collect();
    let deviation = match fractions.as_slice() {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        all => {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let squares = all.iter().fold(0.0, |sum, fraction| sum + (fraction - mean) * (fraction - mean));
            (squares / all.len() as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(requested: i64, allocated: i64, allocatable: i64) -> ResourceShare {
        ResourceShare { requested, allocated, allocatable, weight: 1 }
    }

    fn check(type_: ScoringStrategyType, shares: &[ResourceShare], expected: i64) {
        let strategy = ScoringStrategy { type_, ..ScoringStrategy::default() };
        assert_eq!(score_by_strategy(&strategy, shares), expected);
    }

    #[test]
    fn strategies_weigh_free_and_used_resources() {
        let shares = [share(1000, 0, 4000), share(3, 0, 4), share(1, 0, 0)];
        check(ScoringStrategyType::LeastAllocated, &shares, 50);
        check(ScoringStrategyType::MostAllocated, &shares, 50);
        check(ScoringStrategyType::LeastAllocated, &[share(5, 0, 4)], 0);
        check(ScoringStrategyType::MostAllocated, &[share(5, 0, 4)], 100);
        check(ScoringStrategyType::LeastAllocated, &[], 0);
    }

    #[test]
    fn shapes_are_interpolated() {
        let shape: Vec<UtilizationShapePoint> = [(0, 0), (50, 10), (100, 5)]
            .map(|(utilization, score)| UtilizationShapePoint { utilization, score })
            .into();
        for (utilization, expected) in [(0, 0), (25, 50), (50, 100), (75, 75), (100, 50)] {
            assert_eq!(shape_score(&shape, utilization), expected);
        }
        assert_eq!(ratio_score(&shape, &[share(1, 0, 4), share(0, 0, 4)]), 50);
    }

    #[test]
    fn balance_compares_with_and_without_the_pod() {
        assert_eq!(balanced_score(&[share(50, 0, 100), share(50, 0, 100)]), 75);
        assert_eq!(balanced_score(&[share(100, 0, 100), share(0, 0, 100)]), 50);
        assert_eq!(balanced_score(&[share(50, 50, 100), share(50, 0, 100)]), 87);
    }
}
