//! Maintains the `KubernetesAPIApprovalPolicyConformant` condition: CRDs in protected community groups (`*.k8s.io`,
//! `*.kubernetes.io`) must carry the `api-approved.kubernetes.io` annotation.

use api::{Value, meta};

use super::{find_condition, set_condition};

const APPROVAL_CONDITION: &str = "KubernetesAPIApprovalPolicyConformant";
const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The `KubernetesAPIApprovalPolicyConformant` condition computed for a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiApproval {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl ApiApproval {
    /// Computes the condition; `None` for groups that are not protected.
    pub fn compute(crd: &Value) -> Option<Self> {
        let group = meta::string_at(crd, &["spec", "group"]);
        let protected = |root: &str| group == root || group.ends_with(&format!(".{root}"));
        if !["k8s.io", "kubernetes.io"].into_iter().any(protected) {
            return None;
        }
        let note = meta::string_at(crd, &["metadata", "annotations", APPROVAL_ANNOTATION]);
        let must = format!("protected groups must have approval annotation {APPROVAL_ANNOTATION:?}");
        let address = note.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
        let (status, reason, message) = if note.is_empty() {
            ("False", "MissingAnnotation", format!("{must}, {SEE}"))
        } else if note.starts_with("unapproved") {
            ("False", "UnapprovedAnnotation", format!("not approved: {note:?}"))
        } else if address {
            ("True", "ApprovedAnnotation", format!("approved in {note}"))
        } else {
            let or = "with either a URL or a reason starting with \"unapproved\"";
            ("False", "InvalidAnnotation", format!("{must} {or}, {SEE}"))
        };
        Some(Self { status, reason, message })
    }

    /// Whether the CRD already has this condition.
    pub fn is_recorded(&self, crd: &Value) -> bool {
        find_condition(crd, APPROVAL_CONDITION).is_some_and(|condition| {
            condition["status"] == self.status
                && condition["reason"] == self.reason
                && condition["message"] == *self.message
        })
    }

    /// Sets this condition on the CRD.
    pub fn record(&self, crd: &mut Value) {
        set_condition(crd, [APPROVAL_CONDITION, self.status, self.reason, &self.message]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_protected_groups_need_approval() {
        let check = |group: &str, note: &str| {
            let crd = json!({"metadata": {"annotations": {APPROVAL_ANNOTATION: note}}, "spec": {"group": group}});
            ApiApproval::compute(&crd).map(|approval| approval.reason)
        };
        assert_eq!(check("example.com", ""), None);
        assert_eq!(check("x.k8s.io", ""), Some("MissingAnnotation"));
        assert_eq!(check("x.k8s.io", "unapproved, for a test"), Some("UnapprovedAnnotation"));
        assert_eq!(check("x.k8s.io", "https://example.com/1"), Some("ApprovedAnnotation"));
        assert_eq!(check("x.k8s.io", "yes"), Some("InvalidAnnotation"));
    }
}
