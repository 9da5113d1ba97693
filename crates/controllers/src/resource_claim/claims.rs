//! Decisions about ResourceClaims and the pods that use them.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::{
    pod_availability::is_pod_terminal,
    pod_node::assigned_node,
    pod_resource_claims::{PodClaim, pod_entries},
    pod_view::PodView,
};

/// Finalizer of allocated claims.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of generated claims: the name of the pod's entry.
pub(super) const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Length of a generated name without the hyphen and the random characters.
const MAX_BASE_LENGTH: usize = 57;
/// Number of consumers that may reserve a claim.
const MAX_RESERVED_FOR: usize = 256;

/// Names of the claims that a pod uses, the one for its extended resources included.
pub(super) fn pod_claim_names(pod: &PodView) -> impl Iterator<Item = &str> {
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let extended = extended.map(|status| status.resource_claim_name.as_str());
    pod_entries(pod).iter().filter_map(|entry| PodClaim::from_pod(pod, entry).name()).chain(extended)
}

/// Whether the pod will not run any more and needs no claims.
pub(super) fn is_pod_done(pod: &PodView) -> bool {
    is_pod_terminal(pod) || (pod.metadata.deletion_timestamp.is_some() && assigned_node(pod).is_none())
}

/// Whether the claim is allocated, not reserved for the pod, and may be.
pub(super) fn needs_reservation(pod: &PodView, claim: &ResourceClaim) -> bool {
    let Some(status) = &claim.status else { return false };
    let reserved = status.reserved_for.as_deref().unwrap_or_default();
    let has_pod = reserved.iter().any(|consumer| Some(&consumer.uid) == pod.metadata.uid.as_ref());
    status.allocation.is_some() && !has_pod && reserved.len() < MAX_RESERVED_FOR
}

/// Builds the claim of a pod's entry from its template.
pub(super) fn new_claim(pod: &PodView, entry: &str, template: &ResourceClaimTemplate) -> ResourceClaim {
    let meta = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.into(), entry.to_owned());
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name_any(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(&pod.name_any(), entry)),
            owner_references: Some(vec![owner]),
            annotations: Some(annotations),
            labels: meta.labels,
            ..Default::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// `<pod>-<entry>-`; of names that are too long both parts are shortened in proportion.
fn generate_name(pod: &str, entry: &str) -> String {
    let name = format!("{pod}-{entry}-");
    if name.len() <= MAX_BASE_LENGTH {
        return name;
    }
    // Names of pods and entries are ASCII.
    let shorten = |text: &str| text.chars().take(text.len() * MAX_BASE_LENGTH / name.len()).collect::<String>();
    format!("{}-{}", shorten(pod), shorten(entry))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod_resource_claims::check_owner;

    fn pod(spec: Value, status: Value) -> PodView {
        let meta = json!({"name": "p", "namespace": "ns", "uid": "u"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn claim_of_an_entry_is_found_in_spec_or_status() {
        let entries = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "mine"},
            {"name": "b", "resourceClaimTemplateName": "t"}, {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimTemplateName": "t"}], "containers": []});
        let pod = pod(
            entries,
            json!({"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": []}}),
        );
        let found: Vec<_> = pod_entries(&pod).iter().map(|entry| PodClaim::from_pod(&pod, entry)).collect();
        let want = [PodClaim::Named("mine"), PodClaim::Generated("p-b-x"), PodClaim::NotNeeded, PodClaim::Missing];
        assert_eq!(found, want);
        assert_eq!(pod_claim_names(&pod).collect::<Vec<_>>(), ["mine", "p-b-x", "ext"]);
    }

    #[test]
    fn long_names_keep_both_parts() {
        assert_eq!(generate_name("p", "gpu"), "p-gpu-");
        let name = generate_name(&"p".repeat(60), &"e".repeat(30));
        assert!(name.len() <= MAX_BASE_LENGTH && name.contains("-e"), "{name}");
    }

    #[test]
    fn pod_is_done_when_it_will_not_run() {
        let mut deleted = pod(json!({"containers": []}), json!({}));
        deleted.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now()));
        assert!(is_pod_done(&deleted));
        deleted.spec.as_mut().unwrap().node_name = Some("n".into());
        assert!(!is_pod_done(&deleted));
        assert!(is_pod_done(&pod(json!({"containers": []}), json!({"phase": "Failed"}))));
    }

    #[test]
    fn generated_claim_is_owned_by_its_pod() {
        let template =
            serde_json::from_value(json!({"spec": {"metadata": {"labels": {"x": "y"}}, "spec": {}}})).unwrap();
        let owner = pod(json!({"containers": []}), json!({}));
        let claim = new_claim(&owner, "gpu", &template);
        assert_eq!(claim.annotations()[POD_CLAIM_NAME], "gpu");
        assert_eq!(check_owner(&owner, &claim), Ok(()));
        let mut other = owner;
        other.metadata.uid = Some("v".into());
        assert!(check_owner(&other, &claim).unwrap_err().to_string().contains("pod is not owner"));
    }
}
