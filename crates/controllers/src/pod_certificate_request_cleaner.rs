//! podcertificaterequest-cleaner-controller: deletes PodCertificateRequests after 15 minutes, where the API server has
//! them.

use std::time::Duration;

use client::{ApiErrorExt, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use crate::{
    ControllerContext,
    discovery::check_served,
    periodic::{PeriodicTask, run_periodically},
};

/// Age at which a request is deleted; all flows complete faster.
const THRESHOLD: SignedDuration = SignedDuration::from_mins(15);

struct PodCertificateRequestCleaner {
    client: Client,
    requests: SharedInformer<PodCertificateRequest>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<PodCertificateRequest>(context.informers.client());
    if context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let (client, requests) = (context.client.clone(), context.informers.informer_for());
    run_periodically(&context, PodCertificateRequestCleaner { client, requests }).await;
}

impl PeriodicTask for PodCertificateRequestCleaner {
    const PERIOD: Duration = Duration::from_secs(5 * 60);

    async fn wait_until_ready(&self) {
        self.requests.wait_for_cache_sync().await;
    }

    async fn run_once(&self) {
        let now = Timestamp::now();
        for request in self.requests.list().into_iter().filter(|request| is_old(request, now)) {
            let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
            let api: Api<PodCertificateRequest> = Api::namespaced(self.client.clone(), &namespace);
            let this_one = Preconditions { uid: request.uid(), ..Default::default() };
            match api.delete(&name, &DeleteParams::default().preconditions(this_one)).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(namespace, name, %error, "pod certificate request cleaner: request not deleted");
                }
                _ => {}
            }
        }
    }
}

fn is_old(request: &PodCertificateRequest, now: Timestamp) -> bool {
    let created = request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created.is_some_and(|created| now.duration_since(created) >= THRESHOLD)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn requests_are_old_after_fifteen_minutes() {
        let mut request = PodCertificateRequest::default();
        request.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let after = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        assert!(!is_old(&request, after(14)) && is_old(&request, after(15)));
    }
}
