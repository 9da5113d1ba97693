//! certificatesigningrequest-approving-controller: approves client certificates of kubelets whose requester may ask for
//! them, by SubjectAccessReview.

use client::{RequeueAction, SharedInformer};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    CertificateSyncError, CertificateSyncResult, has_condition, is_issued,
    request::{KUBELET_CLIENT_SIGNER, ParsedRequest},
    watch_requests,
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

/// Subresource that the requester must be able to create, and the message of the approval.
type Permission = (&'static str, &'static str);
const SELF_NODE_CLIENT: Permission =
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const NODE_CLIENT: Permission = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

struct ApprovingController {
    client: Client,
    requests: SharedInformer<CertificateSigningRequest>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, requests) = (context.client.clone(), context.informers.informer_for());
    run_controller(&context, |_| ApprovingController { client, requests }).await;
}

impl Controller for ApprovingController {
    type Key = String;
    type Error = CertificateSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watch_requests(&self.requests, watches);
    }

    async fn sync(&self, name: &String) -> CertificateSyncResult {
        self.sync_request(name).await
    }
}

impl ApprovingController {
    async fn sync_request(&self, name: &str) -> CertificateSyncResult {
        let Some(object) = self.requests.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        if is_issued(&object) || has_condition(&object, "Approved") || has_condition(&object, "Denied") {
            return Ok(RequeueAction::AwaitChange);
        }
        let parsed = ParsedRequest::from_object(&object)
            .map_err(|source| CertificateSyncError::Parse { name: name.into(), source })?;
        let permissions = permissions(&object, &parsed);
        for (subresource, message) in &permissions {
            if self.review_access(&object, subresource).await? {
                self.approve(&object, message).await?;
                return Ok(RequeueAction::AwaitChange);
            }
        }
        // A permission may be granted later.
        Ok(if permissions.is_empty() { RequeueAction::AwaitChange } else { RequeueAction::Backoff })
    }

    async fn review_access(&self, object: &CertificateSigningRequest, subresource: &str) -> Result<bool, kube::Error> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: object.spec.username.clone(),
                uid: object.spec.uid.clone(),
                groups: object.spec.groups.clone(),
                extra: object.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".into()),
                    resource: Some("certificatesigningrequests".into()),
                    subresource: Some(subresource.into()),
                    verb: Some("create".into()),
                    version: Some("*".into()),
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..Default::default()
        };
        let review = api.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, object: &CertificateSigningRequest, message: &str) -> Result<(), kube::Error> {
        let mut approved = object.clone();
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".into(),
            status: "True".into(),
            reason: Some("AutoApproved".into()),
            message: Some(message.into()),
            ..Default::default()
        };
        approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        api.replace_subresource("approval", &object.name_any(), &PostParams::default(), &approved).await.map(drop)
    }
}

/// Returns the permissions of which one suffices; none if the request is not for a kubelet's client certificate.
fn permissions(object: &CertificateSigningRequest, parsed: &ParsedRequest) -> Vec<Permission> {
    let usages = object.spec.usages.as_deref().unwrap_or_default();
    let is_kubelet_client =
        object.spec.signer_name == KUBELET_CLIENT_SIGNER && parsed.check_kubelet_client(usages).is_ok();
    let is_own = object.spec.username.as_deref().unwrap_or_default() == parsed.common_name;
    match (is_kubelet_client, is_own) {
        (false, _) => Vec::new(),
        (true, true) => vec![SELF_NODE_CLIENT, NODE_CLIENT],
        (true, false) => vec![NODE_CLIENT],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_kubelet_client_requests_are_recognised() {
        let check = |signer: &str, username: &str, expected: &[&str]| {
            let object: CertificateSigningRequest = serde_json::from_value(json!({"metadata": {}, "spec": {
                "request": "", "signerName": signer, "username": username, "usages": ["client auth", "digital signature"]}}))
            .unwrap();
            let parsed = ParsedRequest {
                common_name: "system:node:n1".into(),
                organizations: vec!["system:nodes".into()],
                ..Default::default()
            };
            let names: Vec<_> = permissions(&object, &parsed).iter().map(|(name, _)| *name).collect();
            assert_eq!(names, expected);
        };
        check(KUBELET_CLIENT_SIGNER, "system:node:n1", &["selfnodeclient", "nodeclient"]);
        check(KUBELET_CLIENT_SIGNER, "system:bootstrap:abc", &["nodeclient"]);
        check("kubernetes.io/kube-apiserver-client", "system:node:n1", &[]);
    }
}
