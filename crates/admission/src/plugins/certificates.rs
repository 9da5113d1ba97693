//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest: users need
//! permission on a signer to approve, sign or attest for it, and no client certificate is issued for `system:masters`.

use std::sync::Arc;

use api::{Value, meta, status::Status};
use apiserver_core::attributes::ResourceAttributes;
use async_trait::async_trait;
use authz::Authorizers;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, certificate_request};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Requires the verb `approve` on the signer.
pub const CERTIFICATE_APPROVAL: PluginDescriptor = PluginDescriptor {
    name: "CertificateApproval",
    enabled_by_default: true,
    rules: &[ResourceRule {
        resource: (GROUP, REQUESTS),
        subresources: &["approval"],
        operations: &[Operation::Update],
    }],
    construct: |init| Ok(Box::new(CertificateApproval(init.authorizers.clone()))),
};
/// Requires the verb `sign` on the signer.
pub const CERTIFICATE_SIGNING: PluginDescriptor = PluginDescriptor {
    name: "CertificateSigning",
    enabled_by_default: true,
    rules: &[ResourceRule { resource: (GROUP, REQUESTS), subresources: &["status"], operations: &[Operation::Update] }],
    construct: |init| Ok(Box::new(CertificateSigning(init.authorizers.clone()))),
};
/// Requires the verb `attest` on the signer of a ClusterTrustBundle.
pub const CLUSTER_TRUST_BUNDLE_ATTEST: PluginDescriptor = PluginDescriptor {
    name: "ClusterTrustBundleAttest",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object(GROUP, "clustertrustbundles", Operation::WRITES)],
    construct: |init| Ok(Box::new(ClusterTrustBundleAttest(init.authorizers.clone()))),
};
/// Rejects client certificate requests with the group `system:masters`.
pub const CERTIFICATE_SUBJECT_RESTRICTION: PluginDescriptor = PluginDescriptor {
    name: "CertificateSubjectRestriction",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object(GROUP, REQUESTS, &[Operation::Create])],
    construct: |_| Ok(Box::new(CertificateSubjectRestriction)),
};

struct CertificateApproval(Arc<Authorizers>);
struct CertificateSigning(Arc<Authorizers>);
struct ClusterTrustBundleAttest(Arc<Authorizers>);
struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateApproval {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        let signer = meta::string_at(attributes.old.unwrap_or(request), &["spec", "signerName"]);
        if is_signer_allowed(&self.0, attributes, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(attributes.new_forbidden(request, why))
    }
}

#[async_trait]
impl Plugin for CertificateSigning {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        let Some(old) = attributes.old else { return Ok(()) };
        let same = |field: &str| meta::value_at(old, &["status", field]) == meta::value_at(request, &["status", field]);
        let signer = meta::string_at(old, &["spec", "signerName"]);
        if same("certificate") && same("conditions") || is_signer_allowed(&self.0, attributes, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName {signer:?}");
        Err(attributes.new_forbidden(request, why))
    }
}

#[async_trait]
impl Plugin for ClusterTrustBundleAttest {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, bundle: &Value) -> Result<(), Status> {
        let signer = meta::string_at(bundle, &["spec", "signerName"]);
        if signer.is_empty()
            || attributes.old.is_some_and(|old| is_garbage_collector_update(old, bundle))
            || is_signer_allowed(&self.0, attributes, "attest", signer).await
        {
            return Ok(());
        }
        Err(attributes.new_forbidden(bundle, format!("user not permitted to attest for signerName {signer:?}")))
    }
}

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        if meta::string_at(request, &["spec", "signerName"]) != CLIENT_SIGNER {
            return Ok(());
        }
        match certificate_request::parse_request_subject(request) {
            Err(why) => Err(attributes.new_forbidden(request, format!("failed to parse CSR: {why}"))),
            Ok(subject) if subject.organizations.iter().any(|group| group == MASTERS) => {
                let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
                Err(attributes.new_forbidden(request, why))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Whether the user has the verb on a signer, or on all signers of its domain.
async fn is_signer_allowed(
    authorizers: &Authorizers,
    attributes: &AdmissionAttributes<'_>,
    verb: &str,
    signer: &str,
) -> bool {
    let allows = async |name: &str| {
        let resource =
            ResourceAttributes { group: GROUP, version: "*", resource: "signers", name, ..Default::default() };
        attributes.authorize_user(authorizers, verb, resource).await.is_allowed()
    };
    let domain = signer.split('/').next().unwrap_or_default();
    allows(signer).await || allows(&format!("{domain}/*")).await
}

/// Whether only owner references and finalizers change, as the garbage collector does.
fn is_garbage_collector_update(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        let metadata = meta::metadata_mut(&mut object);
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            metadata.remove(field);
        }
        object
    };
    rest(old) == rest(new)
}
