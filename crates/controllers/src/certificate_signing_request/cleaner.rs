//! certificatesigningrequest-cleaner-controller: deletes old requests every hour.

use std::time::Duration;

use client::{ApiErrorExt, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, ResourceExt, api::DeleteParams};
use x509_parser::prelude::FromDer;

use super::is_issued;
use crate::{
    ControllerContext,
    periodic::{PeriodicTask, run_periodically},
};

const HOUR: Duration = Duration::from_secs(3600);
/// Age of issued, denied and failed requests that are deleted.
const HANDLED_EXPIRATION: Duration = HOUR;
/// Age of requests without certificate that are deleted.
const PENDING_EXPIRATION: Duration = Duration::from_secs(24 * 3600);

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let requests = context.informers.informer_for();
    run_periodically(&context, CertificateCleaner { requests, api: Api::all(context.client.clone()) }).await;
}

struct CertificateCleaner {
    requests: SharedInformer<CertificateSigningRequest>,
    api: Api<CertificateSigningRequest>,
}

impl PeriodicTask for CertificateCleaner {
    const PERIOD: Duration = HOUR;

    async fn wait_until_ready(&self) {
        self.requests.wait_for_cache_sync().await;
    }

    async fn run_once(&self) {
        let now = Timestamp::now();
        for request in self.requests.list().into_iter().filter(|request| is_outdated(request, now)) {
            let name = request.name_any();
            match self.api.delete(&name, &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(name, %error, "certificate signing request cleaner: request not deleted");
                }
                _ => {}
            }
        }
    }
}

/// Whether the request is deleted.
fn is_outdated(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let is_older = |time: Option<Timestamp>, age: Duration| {
        time.is_some_and(|time| now.duration_since(time) > jiff::SignedDuration::try_from(age).unwrap_or_default())
    };
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let has_older = |type_: &str, age: Duration| {
        let mut of_type = conditions.iter().filter(|condition| condition.type_ == type_);
        of_type.any(|condition| is_older(condition.last_update_time.as_ref().map(|time| time.0), age))
    };
    let created = request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let is_approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    let approval_expiration = if is_issued(request) { HANDLED_EXPIRATION } else { PENDING_EXPIRATION };
    has_older("Approved", approval_expiration)
        || has_older("Denied", HANDLED_EXPIRATION)
        || has_older("Failed", HANDLED_EXPIRATION)
        || (conditions.is_empty() && is_older(created, PENDING_EXPIRATION))
        || (is_approved && is_certificate_expired(request, now))
}

fn is_certificate_expired(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    let pem = certificate.and_then(|bytes| x509_parser::pem::Pem::iter_from_buffer(&bytes.0).next()?.ok());
    let not_after = pem.and_then(|pem| {
        let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&pem.contents).ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    not_after.is_some_and(|not_after| now.as_second() > not_after)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn age_limit_depends_on_the_outcome() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let check = |condition: &str, at: &str, certificate: &str| {
            let conditions: Vec<Value> = match condition {
                "" => vec![],
                type_ => vec![json!({"type": type_, "status": "True", "lastUpdateTime": at})],
            };
            let request = json!({"metadata": {"creationTimestamp": at}, "spec": {"request": "", "signerName": "s"},
                "status": {"conditions": conditions, "certificate": certificate}});
            is_outdated(&serde_json::from_value(request).unwrap(), now)
        };
        let (recent, hours, days) = ("2026-01-01T23:30:00Z", "2026-01-01T22:00:00Z", "2025-12-31T22:00:00Z");
        assert!(!check("Approved", recent, "YQ==") && check("Approved", hours, "YQ=="));
        assert!(!check("Approved", hours, "") && check("Approved", days, ""));
        assert!(!check("Denied", recent, "") && check("Denied", hours, "") && check("Failed", hours, ""));
        assert!(!check("", hours, "") && check("", days, ""));
    }
}
