//! Templates and update settings of a DaemonSet.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, RollingUpdateDaemonSet},
    core::v1::PodTemplateSpec,
};

use super::placement;
use crate::{
    int_or_percent::{RoundingMode, scaled_value},
    pod_view::PodView,
};

/// Label of pods and revisions with the hash of their template.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Returns `spec.minReadySeconds`.
pub(super) fn min_ready_seconds(set: &DaemonSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Whether pods are replaced by a rolling update.
pub(super) fn is_rolling_update(set: &DaemonSet) -> bool {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate")
}

fn rolling_update(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    set.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref().filter(|_| is_rolling_update(set))
}

/// Returns the number of nodes of `total` that may run a new beside an old pod.
pub(super) fn max_surge(set: &DaemonSet, total: i32) -> i32 {
    scaled_value(rolling_update(set).and_then(|rolling| rolling.max_surge.as_ref()), total, RoundingMode::Up)
}

/// Returns the number of nodes of `total` that may be without an available pod.
pub(super) fn max_unavailable(set: &DaemonSet, total: i32) -> i32 {
    scaled_value(rolling_update(set).and_then(|rolling| rolling.max_unavailable.as_ref()), total, RoundingMode::Up)
}

/// Whether a node may run two pods during an update.
pub(super) fn allows_surge(set: &DaemonSet) -> bool {
    max_surge(set, 1) > 0
}

/// Returns the annotation with the generation of the template.
fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(GENERATION_ANNOTATION)?.parse().ok()
}

/// Returns a label's value.
pub(super) fn pod_label<'a>(pod: &'a PodView, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// Whether a pod has the current template, by hash or by generation.
pub(super) fn is_pod_updated(set: &DaemonSet, pod: &PodView, hash: &str) -> bool {
    let generation = template_generation(set).map(|generation| generation.to_string());
    let by_generation = generation.is_some() && pod_label(pod, GENERATION_LABEL) == generation.as_deref();
    by_generation || !hash.is_empty() && pod_label(pod, REVISION_LABEL) == Some(hash)
}

/// Returns the template of daemon pods, with their tolerations and revision labels.
pub(super) fn daemon_pod_template(set: &DaemonSet, hash: &str) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    if let Some(generation) = template_generation(set) {
        labels.insert(GENERATION_LABEL.into(), generation.to_string());
    }
    if !hash.is_empty() {
        labels.insert(REVISION_LABEL.into(), hash.into());
    }
    let spec = template.spec.get_or_insert_default();
    spec.tolerations = Some(placement::daemon_tolerations(spec));
    template
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> DaemonSet {
        serde_json::from_value(
            json!({"metadata": {"annotations": {GENERATION_ANNOTATION: "3"}}, "spec": {"selector": {},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": []}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}}}),
        )
        .unwrap()
    }

    #[test]
    fn template_has_revision_labels_and_tolerations() {
        let template = serde_json::to_value(daemon_pod_template(&set(), "h")).unwrap();
        assert_eq!(template["metadata"]["labels"], json!({"app": "agent", GENERATION_LABEL: "3", REVISION_LABEL: "h"}));
        assert_eq!(template["spec"]["tolerations"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn pods_are_updated_by_hash_or_generation() {
        let check = |labels: serde_json::Value, expected: bool| {
            let pod: PodView = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(is_pod_updated(&set(), &pod, "h"), expected, "{labels}");
        };
        check(json!({REVISION_LABEL: "h"}), true);
        check(json!({GENERATION_LABEL: "3"}), true);
        check(json!({REVISION_LABEL: "g", GENERATION_LABEL: "2"}), false);
        check(json!({}), false);
    }

    #[test]
    fn percentages_round_up() {
        assert_eq!((max_surge(&set(), 11), max_unavailable(&set(), 11), allows_surge(&set())), (2, 0, true));
    }
}
