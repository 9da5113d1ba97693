//! token-cleaner-controller: deletes expired bootstrap tokens.

use std::time::Duration;

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};

use super::{TokenExpiration, is_bootstrap_token, token_expiration};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
};

struct TokenCleanerController {
    client: Client,
    secrets: SharedInformer<Secret>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, secrets) = (context.client.clone(), context.informers.informer_for());
    run_controller(&context, |_| TokenCleanerController { client, secrets }).await;
}

impl Controller for TokenCleanerController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.secrets, |_, event, queue| {
            if is_bootstrap_token(event.object()) && !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let secret = self.secrets.get(&key.namespace, &key.name).filter(|secret| is_bootstrap_token(secret));
        let Some(secret) = secret else { return Ok(RequeueAction::AwaitChange) };
        let now = Timestamp::now();
        match token_expiration(&secret, now) {
            TokenExpiration::Never => Ok(RequeueAction::AwaitChange),
            TokenExpiration::At(time) => {
                Ok(RequeueAction::After(Duration::try_from(time.duration_since(now)).unwrap_or_default()))
            }
            TokenExpiration::Expired => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
                let this_one = Preconditions { uid: secret.metadata.uid.clone(), ..Default::default() };
                match api.delete(&key.name, &DeleteParams::default().preconditions(this_one)).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
                    _ => Ok(RequeueAction::AwaitChange),
                }
            }
        }
    }
}
