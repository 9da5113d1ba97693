//! Terms of inter-pod affinity and anti-affinity.

use std::sync::Arc;

use k8s_openapi::api::core::v1;

use crate::{intern::intern, views::labels::Selector};

/// A parsed `PodAffinityTerm`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// The namespaces that the term names, or that of its pod if it names none.
    pub namespaces: Box<[Arc<str>]>,
    /// Selects further namespaces.
    pub namespace_selector: Selector,
    /// Selects pods.
    pub selector: Selector,
    /// The node label whose value is the topology domain.
    pub topology_key: Arc<str>,
}

impl AffinityTerm {
    fn from_term(term: &v1::PodAffinityTerm, namespace: &str) -> Self {
        let named = term.namespaces.as_deref().unwrap_or(&[]);
        let namespaces = match (named, &term.namespace_selector) {
            ([], None) => Box::from([intern(namespace)]),
            (named, _) => named.iter().map(|name| intern(name)).collect(),
        };
        Self {
            namespaces,
            namespace_selector: Selector::from_label_selector(term.namespace_selector.as_ref()),
            selector: Selector::from_label_selector(term.label_selector.as_ref()),
            topology_key: intern(&term.topology_key),
        }
    }
}

/// All affinity terms of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodAffinityTerms {
    /// Terms of the required affinity.
    pub required: Box<[AffinityTerm]>,
    /// Terms of the required anti-affinity.
    pub required_anti: Box<[AffinityTerm]>,
    /// Terms of the preferred affinity with their weights.
    pub preferred: Box<[(i32, AffinityTerm)]>,
    /// Terms of the preferred anti-affinity with their weights.
    pub preferred_anti: Box<[(i32, AffinityTerm)]>,
    /// Whether the pod has a `podAffinity` or `podAntiAffinity`, even without terms.
    pub is_present: bool,
}

impl PodAffinityTerms {
    /// Parses the terms of a pod in `namespace`.
    pub fn from_spec(spec: &v1::PodSpec, namespace: &str) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |terms: Option<&Vec<v1::PodAffinityTerm>>| {
            terms.into_iter().flatten().map(|term| AffinityTerm::from_term(term, namespace)).collect()
        };
        let preferred = |terms: Option<&Vec<v1::WeightedPodAffinityTerm>>| {
            let terms = terms.into_iter().flatten();
            terms.map(|term| (term.weight, AffinityTerm::from_term(&term.pod_affinity_term, namespace))).collect()
        };
        Self {
            required: required(
                affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            required_anti: required(
                anti_affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred: preferred(
                affinity.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred_anti: preferred(
                anti_affinity.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
            is_present: affinity.is_some() || anti_affinity.is_some(),
        }
    }
}
