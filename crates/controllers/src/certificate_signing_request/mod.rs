//! Controllers of CertificateSigningRequests: approving, signing, cleaning.

pub(crate) mod approver;
mod authority;
pub(crate) mod cleaner;
mod request;
pub(crate) mod signer;

use client::{RequeueAction, SharedInformer};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::controller::{Controller, ControllerWatches};

/// Queues every changed request by name.
fn watch_requests<C: Controller<Key = String>>(
    requests: &SharedInformer<CertificateSigningRequest>,
    watches: &mut ControllerWatches<C>,
) {
    watches.add(requests, |_, event, queue| {
        event.object().metadata.name.iter().for_each(|name| queue.add(name.clone()));
    });
}

/// Whether the request has a certificate.
fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// Whether the request has a condition.
fn has_condition(request: &CertificateSigningRequest, type_: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == type_)
}

/// A request could not be handled.
#[derive(Debug, thiserror::Error)]
enum CertificateSyncError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("unable to parse csr {name:?}: {source}")]
    Parse { name: String, source: request::ParseRequestError },
    #[error("error auto signing csr: {0}")]
    Sign(#[from] authority::SignError),
}

/// Result of a handled request.
type CertificateSyncResult = Result<RequeueAction, CertificateSyncError>;
