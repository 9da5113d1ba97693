//! Rejects pods that use scheduling features outside of the supported set, and names the feature in the reason.

use k8s_openapi::api::core::v1::PodSpec;

use super::{PodRejection, SchedulerPlugin};
use crate::cache::PodInfo;

pub(super) struct UnsupportedFeatures;

impl SchedulerPlugin for UnsupportedFeatures {
    fn pre_filter(&self, pod: &PodInfo) -> Result<(), PodRejection> {
        match pod.pod.spec.as_ref().and_then(unsupported_feature) {
            Some(wish) => Err(PodRejection(format!("{wish} not supported by this scheduler"))),
            None => Ok(()),
        }
    }
}

/// Returns the first unsupported feature, with its verb.
fn unsupported_feature(spec: &PodSpec) -> Option<&'static str> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|all| all.pod_affinity.as_ref());
    let apart = affinity.and_then(|all| all.pod_anti_affinity.as_ref());
    let spread = spec.topology_spread_constraints.iter().flatten();
    let is_some = |list: Option<bool>| list == Some(true);
    let required = |list: &Option<Vec<_>>| list.as_ref().is_some_and(|terms: &Vec<_>| !terms.is_empty());
    match () {
        () if is_some(near.map(|near| required(&near.required_during_scheduling_ignored_during_execution))) => {
            Some("required pod affinity is")
        }
        () if is_some(apart.map(|apart| required(&apart.required_during_scheduling_ignored_during_execution))) => {
            Some("required pod anti-affinity is")
        }
        () if spread.into_iter().any(|constraint| constraint.when_unsatisfiable == "DoNotSchedule") => {
            Some("topology spread constraints with DoNotSchedule are")
        }
        () if spec.volumes.iter().flatten().any(|volume| volume.persistent_volume_claim.is_some()) => {
            Some("persistent volume claims are")
        }
        () if spec.volumes.iter().flatten().any(|volume| volume.ephemeral.is_some()) => {
            Some("ephemeral volume claims are")
        }
        () if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) => Some("resource claims are"),
        () if spec.scheduling_group.is_some() => Some("scheduling groups are"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests::pod, *};

    fn check(spec: Value, expected: Option<&str>) {
        assert_eq!(pod(json!({"spec": spec})).pod.spec.as_ref().and_then(unsupported_feature), expected);
    }

    #[test]
    fn unsupported_features_are_named() {
        let term =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]});
        let soft = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "z"}}]});
        let spread = |when: &str| json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}]);
        check(json!({"affinity": {"podAffinity": term}}), Some("required pod affinity is"));
        check(json!({"affinity": {"podAntiAffinity": term}}), Some("required pod anti-affinity is"));
        check(json!({"affinity": {"podAntiAffinity": soft}}), None);
        check(
            json!({"topologySpreadConstraints": spread("DoNotSchedule")}),
            Some("topology spread constraints with DoNotSchedule are"),
        );
        check(json!({"topologySpreadConstraints": spread("ScheduleAnyway")}), None);
        check(json!({"volumes": [{"name": "v", "emptyDir": {}}]}), None);
        check(
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
            Some("persistent volume claims are"),
        );
    }
}
