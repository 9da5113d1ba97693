//! Group-versions with kinds but without resources: removed versions, and types that components exchange.

/// The group-versions of upstream's schemes that serve nothing.
const VERSIONS_WITHOUT_RESOURCES: &[(&str, &[&str])] = &[
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1beta1"]),
    ("apiregistration.k8s.io", &["v1beta1"]),
    ("apps", &["v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1beta1"]),
    ("batch", &["v1beta1"]),
    ("discovery.k8s.io", &["v1beta1"]),
    ("events.k8s.io", &["v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1beta1", "v1beta2", "v1beta3"]),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("node.k8s.io", &["v1alpha1", "v1beta1"]),
    ("policy", &["v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1alpha1", "v1beta1"]),
    ("scheduling.k8s.io", &["v1beta1"]),
    ("storage.k8s.io", &["v1alpha1"]),
];

/// Iterates over the group-versions.
pub(crate) fn versions_without_resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    VERSIONS_WITHOUT_RESOURCES.iter().flat_map(|(group, versions)| versions.iter().map(|version| (*group, *version)))
}
