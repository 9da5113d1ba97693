//! The workloads: upstream's `scheduler_perf` test cases with their parameters.

use crate::templates::PodTemplate;

/// The background load while pods are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// No load.
    None,
    /// A pod every 200 ms.
    Create(PodTemplate),
    /// A node, a pod that fits nowhere and a service are created and deleted, one step each second.
    Recreate,
    /// Pods that were bound before are deleted, 50 a second.
    DeleteBound,
}

/// A test case with its parameters.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Upstream's name of the test case.
    pub case: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of pods that a node takes.
    pub pods_per_node: usize,
    /// Zones of the nodes.
    pub zones: &'static [&'static str],
    /// Pods that wait all the time and are not waited for.
    pub waiting: usize,
    /// Pods that are bound before.
    pub init: Vec<(PodTemplate, usize)>,
    /// The background load.
    pub churn: Churn,
    /// Pods that are measured.
    pub measured: (PodTemplate, usize),
}

impl Workload {
    /// Name and size.
    pub fn name(&self) -> String {
        format!("{}/{}Nodes_{}Pods", self.case, self.nodes, self.measured.1)
    }

    /// Whether pods of this template are in it.
    pub fn has(&self, template: PodTemplate) -> bool {
        self.measured.0 == template || self.init.iter().any(|(init, _)| *init == template)
    }
}

const ZONE: &[&str] = &["zone1"];
const MOONS: &[&str] = &["moon-1", "moon-2", "moon-3"];

/// All workloads, at 500, 1,000 and 5,000 nodes. Where upstream has parameters for a size they are upstream's; those of
/// 1,000 nodes lie between.
pub fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    for nodes in [500, 1000, 5000] {
        let by_size = |small: usize, middle: usize, large: usize| match nodes {
            500 => small,
            1000 => middle,
            _ => large,
        };
        let plain = |case, zones, init, measured| Workload {
            case,
            nodes,
            pods_per_node: 110,
            zones,
            waiting: 0,
            init,
            churn: Churn::None,
            measured,
        };
        let usual = (by_size(500, 1000, 5000), by_size(1000, 2000, 5000));
        let same = |case, zones, template, (init, measured): (usize, usize)| {
            plain(case, zones, vec![(template, init)], (template, measured))
        };
        let default = PodTemplate::Default;
        all.push(same("SchedulingBasic", &[], default, (by_size(500, 1000, 1000), by_size(1000, 2000, 10_000))));
        let anti = (by_size(100, 200, 1000), by_size(400, 800, 2000));
        all.push(same("SchedulingPodAntiAffinity", &[], PodTemplate::AntiAffinity, anti));
        all.push(same("SchedulingPodAffinity", ZONE, PodTemplate::Affinity, usual));
        all.push(same("SchedulingPreferredPodAffinity", &[], PodTemplate::PreferredAffinity, usual));
        all.push(same("SchedulingPreferredPodAntiAffinity", &[], PodTemplate::PreferredAntiAffinity, usual));
        all.push(same("SchedulingNodeAffinity", ZONE, PodTemplate::NodeAffinity, usual));
        let spreading = [
            ("TopologySpreading", PodTemplate::Spreading),
            ("PreferredTopologySpreading", PodTemplate::PreferredSpreading),
        ];
        for (case, template) in spreading {
            let before = (default, by_size(1000, 1000, 5000));
            all.push(plain(case, MOONS, vec![before], (template, by_size(1000, 2000, 5000))));
        }
        let init = by_size(200, 400, 2000);
        let mixed = [
            default,
            PodTemplate::Affinity,
            PodTemplate::AntiAffinity,
            PodTemplate::PreferredAffinity,
            PodTemplate::PreferredAntiAffinity,
        ];
        let mixed = mixed.map(|template| (template, init)).to_vec();
        all.push(plain("MixedSchedulingBasePod", ZONE, mixed, (default, by_size(1000, 2000, 5000))));
        all.push(same("SchedulingCSIPVs", &[], PodTemplate::Volume, usual));
        let low = vec![(PodTemplate::LowPriority, nodes * 4)];
        all.push(plain("PreemptionBasic", &[], low.clone(), (PodTemplate::HighPriority, nodes.min(1000))));
        let churn = Churn::Create(PodTemplate::HighPriority);
        all.push(Workload { churn, ..plain("PreemptionAsync", &[], low, (default, nodes)) });
        let churn = Churn::Create(PodTemplate::HighPriorityLargeCpu);
        let (init, measured) = (by_size(10, 20, 100), by_size(1000, 2000, 10_000));
        all.push(Workload { churn, ..plain("Unschedulable", &[], vec![(default, init)], (default, measured)) });
        let churn = Churn::Recreate;
        all.push(Workload { churn, ..plain("SchedulingWithMixedChurn", &[], vec![], (default, measured)) });
        let devices = (by_size(2500, 2500, 2500), by_size(2500, 2500, 2500));
        all.push(same("SchedulingWithResourceClaim", &[], PodTemplate::Claim, devices));
    }
    all.push(Workload {
        case: "SchedulingWhileGated",
        nodes: 1,
        pods_per_node: 90_000,
        zones: &[],
        waiting: 10_000,
        init: vec![(PodTemplate::Light, 5000)],
        churn: Churn::DeleteBound,
        measured: (PodTemplate::Light, 5000),
    });
    all
}
