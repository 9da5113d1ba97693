//! certificatesigningrequest-signing-controller: signs approved requests of the four `kubernetes.io` signers.

use std::sync::Arc;

use client::{RequeueAction, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    CertificateSyncError, CertificateSyncResult,
    authority::{CertificateAuthority, requested_validity},
    has_condition, is_issued,
    request::{KUBELET_CLIENT_SIGNER, ParsedRequest, SignerRuleViolation, check_client_usages},
    watch_requests,
};
use crate::{
    ClusterSigningOptions, ControllerContext, ControllerOptions, SigningKeyPair,
    controller::{Controller, ControllerWatches, run_controller},
};

struct SigningController {
    client: Client,
    requests: SharedInformer<CertificateSigningRequest>,
    options: Arc<ControllerOptions>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, requests) = (context.client.clone(), context.informers.informer_for());
    let options = context.options.clone();
    run_controller(&context, |_| SigningController { client, requests, options }).await;
}

impl Controller for SigningController {
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

impl SigningController {
    async fn sync_request(&self, name: &str) -> CertificateSyncResult {
        let Some(object) = self.requests.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let options = &self.options.cluster_signing;
        let Some(files) = key_pair_of_signer(options, &object.spec.signer_name) else {
            return Ok(RequeueAction::AwaitChange);
        };
        if !needs_certificate(&object) {
            return Ok(RequeueAction::AwaitChange);
        }
        let parsed = ParsedRequest::from_object(&object)
            .map_err(|source| CertificateSyncError::Parse { name: name.into(), source })?;
        let usages = object.spec.usages.as_deref().unwrap_or_default();
        let mut signed = CertificateSigningRequest::clone(&object);
        let status = signed.status.get_or_insert_default();
        match check_signer_rules(&object.spec.signer_name, &parsed, usages) {
            Err(rule) => status.conditions.get_or_insert_default().push(validation_failure(rule.to_string())),
            Ok(()) => {
                // Read for every certificate, so that renewed files take effect at once.
                let authority = CertificateAuthority::read(files)?;
                let validity = requested_validity(object.spec.expiration_seconds, options.duration);
                let certificate = authority.sign(&parsed, usages, validity, Timestamp::now())?;
                status.certificate = Some(ByteString(certificate.into_bytes()));
            }
        }
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        api.replace_status(&object.name_any(), &PostParams::default(), &signed).await?;
        Ok(RequeueAction::AwaitChange)
    }
}

fn key_pair_of_signer<'a>(options: &'a ClusterSigningOptions, signer: &str) -> Option<&'a SigningKeyPair> {
    match signer {
        "kubernetes.io/kubelet-serving" => options.kubelet_serving.as_ref(),
        KUBELET_CLIENT_SIGNER => options.kubelet_client.as_ref(),
        "kubernetes.io/kube-apiserver-client" => options.kube_apiserver_client.as_ref(),
        "kubernetes.io/legacy-unknown" => options.legacy_unknown.as_ref(),
        _ => None,
    }
}

/// Whether the request is approved, has not failed and has no certificate.
fn needs_certificate(object: &CertificateSigningRequest) -> bool {
    has_condition(object, "Approved")
        && !has_condition(object, "Denied")
        && !has_condition(object, "Failed")
        && !is_issued(object)
}

fn check_signer_rules(signer: &str, parsed: &ParsedRequest, usages: &[String]) -> Result<(), SignerRuleViolation> {
    match signer {
        "kubernetes.io/kubelet-serving" => parsed.check_kubelet_serving(usages),
        KUBELET_CLIENT_SIGNER => parsed.check_kubelet_client(usages),
        "kubernetes.io/kube-apiserver-client" => check_client_usages(usages),
        _ => Ok(()),
    }
}

fn validation_failure(message: String) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: "Failed".into(),
        status: "True".into(),
        reason: Some("SignerValidationFailure".into()),
        message: Some(message),
        last_update_time: Some(Time(Timestamp::now())),
        ..Default::default()
    }
}
