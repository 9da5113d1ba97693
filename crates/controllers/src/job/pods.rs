//! Pods of a Job: completion index, failure counts, tracking finalizer, and the pods built from the template.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
};
use kube::ResourceExt;

use super::{policies::pod_failure_action, spec::only_replaces_failed_pods};
use crate::{pod_availability::pod_phase, pod_control::pod_from_template, pod_view::PodView};

/// Finalizer of pods that the Job's status does not count yet.
pub(super) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label with the completion index.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const COMPLETION_INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// Longest prefix of a generated name.
const MAX_GENERATED_NAME_LENGTH: usize = 58;

/// Returns the pod's uid.
pub(super) fn pod_uid(pod: &PodView) -> &str {
    pod.metadata.uid.as_deref().unwrap_or("")
}

/// Whether the pod has the tracking finalizer.
pub(super) fn has_tracking_finalizer(pod: &PodView) -> bool {
    is_tracked(pod.finalizers())
}

fn is_tracked(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

/// Whether the pod counts as failed. A pod that is deleted may never reach the phase `Failed`, so it counts too, unless
/// only failed pods are replaced.
pub(super) fn is_pod_failed(pod: &PodView, spec: &JobSpec) -> bool {
    match pod_phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !only_replaces_failed_pods(spec) && pod.metadata.deletion_timestamp.is_some(),
    }
}

/// Returns the pod's completion index.
pub(super) fn completion_index(pod: &PodView) -> Option<i64> {
    pod.annotations().get(COMPLETION_INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// Returns the pod's completion index if it is below `completions`.
pub(super) fn valid_completion_index(pod: &PodView, completions: i32) -> Option<i64> {
    completion_index(pod).filter(|index| *index < completions.into())
}

/// Returns the failures of the index before this pod that count towards `backoffLimitPerIndex`.
pub(super) fn index_failure_count(pod: &PodView) -> i32 {
    count_annotation(pod, INDEX_FAILURE_COUNT)
}

/// Returns all failures of the index before this pod.
pub(super) fn absolute_index_failure_count(pod: &PodView) -> i32 {
    index_failure_count(pod).saturating_add(count_annotation(pod, INDEX_IGNORED_FAILURE_COUNT))
}

fn count_annotation(pod: &PodView, name: &str) -> i32 {
    pod.annotations().get(name).and_then(|count| count.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// Builds the pod of an index, or of a Job without indexes. `replaced` is the failed pod of the index, whose failure
/// counts the new pod continues.
pub(super) fn new_job_pod(job: &Job, spec: &JobSpec, index: Option<i64>, replaced: Option<&PodView>) -> Pod {
    let mut pod = pod_from_template(&spec.template, job);
    if !is_tracked(pod.finalizers()) {
        pod.finalizers_mut().push(TRACKING_FINALIZER.into());
    }
    if let Some(index) = index {
        add_completion_index(&mut pod, &job.name_any(), index);
        if spec.backoff_limit_per_index.is_some() {
            add_failure_counts(pod.annotations_mut(), spec, replaced);
        }
    }
    pod
}

fn add_completion_index(pod: &mut Pod, job_name: &str, index: i64) {
    pod.metadata.generate_name = Some(generate_name_with_index(job_name, index));
    pod.annotations_mut().insert(COMPLETION_INDEX.into(), index.to_string());
    pod.labels_mut().insert(COMPLETION_INDEX.into(), index.to_string());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{job_name}-{index}"));
        spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(add_completion_index_env);
    }
}

/// Returns `<job>-<index>-`, with the Job's name cut where the whole is too long for a generated name.
fn generate_name_with_index(job_name: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let kept = MAX_GENERATED_NAME_LENGTH.saturating_sub(suffix.len()).min(job_name.len());
    format!("{}{suffix}", job_name.get(..kept).unwrap_or(job_name))
}

fn add_completion_index_env(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == COMPLETION_INDEX_ENV) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{COMPLETION_INDEX}']"), api_version: None };
    variables.push(EnvVar {
        name: COMPLETION_INDEX_ENV.into(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..Default::default() }),
    });
}

fn add_failure_counts(annotations: &mut BTreeMap<String, String>, spec: &JobSpec, replaced: Option<&PodView>) {
    let (mut counted, mut ignored) = (0, 0);
    if let Some(replaced) = replaced {
        counted = index_failure_count(replaced);
        ignored = count_annotation(replaced, INDEX_IGNORED_FAILURE_COUNT);
        match pod_failure_action(spec.pod_failure_policy.as_ref(), replaced).counts() {
            true => counted += 1,
            false => ignored += 1,
        }
    }
    annotations.insert(INDEX_FAILURE_COUNT.into(), counted.to_string());
    if ignored > 0 {
        annotations.insert(INDEX_IGNORED_FAILURE_COUNT.into(), ignored.to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(spec: serde_json::Value) -> Job {
        let mut object = json!({"metadata": {"name": "j", "uid": "1"}, "spec": {"template": {
            "metadata": {"labels": {"app": "j"}}, "spec": {"containers": [{"name": "c"}]}}}});
        json_merge(&mut object["spec"], spec);
        serde_json::from_value(object).unwrap()
    }

    fn json_merge(into: &mut serde_json::Value, from: serde_json::Value) {
        for (key, value) in from.as_object().unwrap() {
            into[key] = value.clone();
        }
    }

    fn view(pod: &Pod) -> PodView {
        serde_json::from_value(json!(pod)).unwrap()
    }

    #[test]
    fn indexed_pod_has_index_hostname_and_environment() {
        let job = job(json!({"completionMode": "Indexed", "completions": 3}));
        let pod = new_job_pod(&job, job.spec.as_ref().unwrap(), Some(2), None);
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("j-2-"));
        assert_eq!((completion_index(&view(&pod)), pod.labels()[COMPLETION_INDEX].as_str()), (Some(2), "2"));
        assert!(has_tracking_finalizer(&view(&pod)) && !pod.annotations().contains_key(INDEX_FAILURE_COUNT));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("j-2"));
        assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    }

    #[test]
    fn generated_names_fit_the_limit() {
        assert_eq!(generate_name_with_index("job", 7), "job-7-");
        let long = generate_name_with_index(&"a".repeat(63), 12);
        assert_eq!((long.len(), long.ends_with("a-12-")), (58, true));
    }

    #[test]
    fn replacement_continues_the_failure_counts() {
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]});
        let job = job(json!({"completionMode": "Indexed", "backoffLimitPerIndex": 3, "podFailurePolicy": policy}));
        let spec = job.spec.as_ref().unwrap();
        let mut failed = new_job_pod(&job, spec, Some(0), None);
        assert_eq!(failed.annotations()[INDEX_FAILURE_COUNT], "0");
        failed = new_job_pod(&job, spec, Some(0), Some(&view(&failed)));
        assert_eq!((index_failure_count(&view(&failed)), absolute_index_failure_count(&view(&failed))), (1, 1));
        failed.status =
            serde_json::from_value(json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]})).unwrap();
        failed = new_job_pod(&job, spec, Some(0), Some(&view(&failed)));
        assert_eq!((index_failure_count(&view(&failed)), absolute_index_failure_count(&view(&failed))), (1, 2));
    }
}
