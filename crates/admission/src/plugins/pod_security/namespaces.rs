//! Namespaces: validates pod security labels, and warns of existing pods that violate a stricter enforce level.

use std::collections::{BTreeMap, BTreeSet};

use api::{Value, meta, status::Status};

use super::{EvaluatedPod, PodSecurity, PodSecurityLevel, PodSecurityPolicy, evaluate_pod, policy};
use crate::AdmissionAttributes;

/// Maximum number of pods to evaluate.
const MAX_EVALUATED_PODS: usize = 3000;

impl PodSecurity {
    /// Validates the pod security labels of a namespace.
    pub(super) async fn validate_namespace(
        &self,
        attributes: &AdmissionAttributes<'_>,
        namespace: &Value,
    ) -> Result<(), Status> {
        let labels = |namespace: &Value| namespace["metadata"]["labels"].clone();
        let (new, errors) = self.defaults.with_namespace_labels(&labels(namespace));
        let name = meta::name(namespace);
        let exempt = self.exempt.namespaces.iter().any(|exempt| exempt == name);
        let Some(old) = attributes.old else {
            if !errors.is_empty() {
                return Err(Status::invalid_object(attributes.resource(), name, &errors));
            }
            if exempt {
                self.warn_exempt(attributes, name, &new, &labels(namespace));
            }
            return Ok(());
        };
        let (before, known) = self.defaults.with_namespace_labels(&labels(old));
        if !errors.is_empty() && errors != known {
            return Err(Status::invalid_object(attributes.resource(), name, &errors));
        }
        let looser = new.enforce.version == before.enforce.version && new.enforce.level <= before.enforce.level;
        if new.enforce == before.enforce || new.enforce.level == PodSecurityLevel::Privileged || looser {
            return Ok(());
        }
        if exempt {
            self.warn_exempt(attributes, name, &new, &labels(namespace));
            return Ok(());
        }
        self.warn_about_existing_pods(attributes, name, new.enforce).await
    }

    fn warn_exempt(&self, attributes: &AdmissionAttributes<'_>, name: &str, new: &PodSecurityPolicy, labels: &Value) {
        if new.is_fully_privileged() || *new == self.defaults {
            return;
        }
        let modes = [("enforce", new.enforce), ("audit", new.audit), ("warn", new.warn)];
        let labelled = |mode: &str| {
            [mode.to_owned(), format!("{mode}-version")]
                .iter()
                .any(|mode| meta::value_at(labels, &[&policy::mode_label(mode)]).is_some())
        };
        let modes_text: Vec<String> = modes
            .iter()
            .filter(|(mode, bound)| bound.level != PodSecurityLevel::Privileged && labelled(mode))
            .map(|(mode, bound)| format!("{mode}={bound}"))
            .collect();
        attributes.warnings().add_warning(format!(
            "namespace {name:?} is exempt from Pod Security, and the policy ({}) will be ignored",
            modes_text.join(", ")
        ));
    }

    async fn warn_about_existing_pods(
        &self,
        attributes: &AdmissionAttributes<'_>,
        name: &str,
        bound: policy::LevelVersion,
    ) -> Result<(), Status> {
        let pods = self.prioritize_pods(attributes.list_objects(("", "v1", "pods"), name).await?);
        let mut found: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for pod in pods.iter().take(MAX_EVALUATED_PODS) {
            let beyond = evaluate_pod(bound, &EvaluatedPod { metadata: &pod["metadata"], spec: &pod["spec"] });
            let reasons: Vec<&str> = beyond.iter().map(|violation| violation.reason).collect();
            if !reasons.is_empty() {
                found.entry(reasons.join(", ")).or_default().insert(meta::name(pod));
            }
        }
        let collector = attributes.warnings();
        if pods.len() > MAX_EVALUATED_PODS {
            collector.add_warning(format!(
                "new PodSecurity enforce level only checked against the first {MAX_EVALUATED_PODS} of {} existing pods",
                pods.len()
            ));
        }
        if !found.is_empty() {
            let bound = bound.to_string();
            collector.add_warning(format!(
                "existing pods in namespace {name:?} violate the new PodSecurity enforce level {bound:?}"
            ));
        }
        let mut warnings: Vec<String> = found.iter().map(|(reason, pods)| format_pod_warning(reason, pods)).collect();
        warnings.sort();
        warnings.into_iter().for_each(|text| collector.add_warning(text));
        Ok(())
    }

    /// Orders pods so that one of each controller comes first, and drops exempt ones.
    fn prioritize_pods(&self, pods: Vec<Value>) -> Vec<Value> {
        let mut seen = BTreeSet::new();
        let owner = |pod: &Value| {
            let owners = meta::list_at(pod, &["metadata", "ownerReferences"]).iter();
            owners
                .filter(|owner| owner["controller"] == true)
                .map(|owner| meta::string_at(owner, &["uid"]).to_owned())
                .next()
        };
        let exempt = |pod: &Value| {
            let class = meta::string_at(pod, &["spec", "runtimeClassName"]);
            self.exempt.runtime_classes.iter().any(|exempt| exempt == class)
        };
        let (first, more): (Vec<Value>, Vec<Value>) = pods
            .into_iter()
            .filter(|pod| !exempt(pod))
            .partition(|pod| owner(pod).is_none_or(|owner| seen.insert(owner)));
        first.into_iter().chain(more).collect()
    }
}

fn format_pod_warning(reason: &str, pods: &BTreeSet<&str>) -> String {
    let first = pods.first().copied().unwrap_or_default();
    match pods.len() {
        1 => format!("{first}: {reason}"),
        2 => format!("{first} (and 1 other pod): {reason}"),
        count => format!("{first} (and {} other pods): {reason}", count - 1),
    }
}
