//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest: users need
//! permission on a signer to approve, sign or attest for it, and no client certificate is issued for `system:masters`.

use std::sync::Arc;

use api::{Value, meta, status::Status};
use apiserver_core::attributes::AttributesTarget;
use async_trait::async_trait;
use authz::Authorizers;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, certificate_request};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Requires the verb `approve` on the signer.
pub const APPROVAL: PluginDescriptor = PluginDescriptor {
    name: "CertificateApproval",
    on: true,
    about: &[ResourceRule {
        resource: (GROUP, REQUESTS),
        subresources: &["approval"],
        operations: &[Operation::Update],
    }],
    make: |parts| Ok(Box::new(Approval(parts.authorizers.clone()))),
};
/// Requires the verb `sign` on the signer.
pub const SIGNING: PluginDescriptor = PluginDescriptor {
    name: "CertificateSigning",
    on: true,
    about: &[ResourceRule { resource: (GROUP, REQUESTS), subresources: &["status"], operations: &[Operation::Update] }],
    make: |parts| Ok(Box::new(Signing(parts.authorizers.clone()))),
};
/// Requires the verb `attest` on the signer of a ClusterTrustBundle.
pub const ATTEST: PluginDescriptor = PluginDescriptor {
    name: "ClusterTrustBundleAttest",
    on: true,
    about: &[ResourceRule::object(GROUP, "clustertrustbundles", &[Operation::Create, Operation::Update])],
    make: |parts| Ok(Box::new(Attest(parts.authorizers.clone()))),
};
/// Rejects client certificate requests with the group `system:masters`.
pub const SUBJECT: PluginDescriptor = PluginDescriptor {
    name: "CertificateSubjectRestriction",
    on: true,
    about: &[ResourceRule::object(GROUP, REQUESTS, &[Operation::Create])],
    make: |_| Ok(Box::new(SubjectRestriction)),
};

struct Approval(Arc<Authorizers>);
struct Signing(Arc<Authorizers>);
struct Attest(Arc<Authorizers>);
struct SubjectRestriction;

#[async_trait]
impl Plugin for Approval {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        let signer = meta::string_at(attributes.old.unwrap_or(request), &["spec", "signerName"]);
        if may(&self.0, attributes, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(attributes.forbidden(request, why))
    }
}

#[async_trait]
impl Plugin for Signing {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        let Some(old) = attributes.old else { return Ok(()) };
        let same = |field: &str| meta::value_at(old, &["status", field]) == meta::value_at(request, &["status", field]);
        let signer = meta::string_at(old, &["spec", "signerName"]);
        if same("certificate") && same("conditions") || may(&self.0, attributes, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName {signer:?}");
        Err(attributes.forbidden(request, why))
    }
}

#[async_trait]
impl Plugin for Attest {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, bundle: &Value) -> Result<(), Status> {
        let signer = meta::string_at(bundle, &["spec", "signerName"]);
        if signer.is_empty()
            || attributes.old.is_some_and(|old| differs_only_for_the_collector(old, bundle))
            || may(&self.0, attributes, "attest", signer).await
        {
            return Ok(());
        }
        Err(attributes.forbidden(bundle, format!("user not permitted to attest for signerName {signer:?}")))
    }
}

#[async_trait]
impl Plugin for SubjectRestriction {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, request: &Value) -> Result<(), Status> {
        if meta::string_at(request, &["spec", "signerName"]) != CLIENT_SIGNER {
            return Ok(());
        }
        match certificate_request::subject(request) {
            Err(why) => Err(attributes.forbidden(request, format!("failed to parse CSR: {why}"))),
            Ok(subject) if subject.organizations.iter().any(|group| group == MASTERS) => {
                let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
                Err(attributes.forbidden(request, why))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Whether the user has the verb on a signer, or on all signers of its domain.
async fn may(authorizers: &Authorizers, attributes: &AdmissionAttributes<'_>, verb: &str, signer: &str) -> bool {
    let allows = async |name: &str| {
        let resource = apiserver_core::attributes::ResourceAttributes {
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..Default::default()
        };
        let asked = apiserver_core::attributes::Attributes {
            user: attributes.user(),
            verb,
            target: AttributesTarget::Resource(resource),
        };
        authorizers.is_allowed(&asked).await
    };
    let domain = signer.split('/').next().unwrap_or_default();
    allows(signer).await || allows(&format!("{domain}/*")).await
}

/// Whether only owner references and finalizers change, as the garbage collector does.
fn differs_only_for_the_collector(old: &Value, new: &Value) -> bool {
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
