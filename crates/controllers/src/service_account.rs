//! A ServiceAccount `default` in every active namespace, for pods that name none.

use std::sync::Arc;

use client::{ApiErrorExt, Informer, Queue, Requeue};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::watcher,
};

use crate::Context;

const NAME: &str = "default";

struct Controller {
    client: Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let only_default = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let controller = Arc::new(Controller {
        namespaces: context.informers.of(),
        accounts: Informer::start(Api::all(context.client.clone()), only_default, context.shutdown.clone()),
        client: context.client,
    });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    controller
        .namespaces
        .on_change(move |change| change.object().metadata.name.iter().for_each(|name| wake.add(name.clone())));
    let wake = queue.clone();
    controller.accounts.on_change(move |change| {
        change.object().metadata.namespace.iter().for_each(|namespace| wake.add(namespace.clone()));
    });
    controller.namespaces.synced().await;
    controller.accounts.synced().await;
    let sync = move |namespace: String| {
        let controller = controller.clone();
        async move { controller.sync(&namespace).await }
    };
    queue.run(1, context.shutdown, sync).await;
}

impl Controller {
    async fn sync(&self, namespace: &str) -> Result<Requeue, kube::Error> {
        let active = self.namespaces.get("", namespace).is_some_and(|namespace| is_active(&namespace));
        if !active || self.accounts.get(namespace, NAME).is_some() {
            return Ok(Requeue::No);
        }
        let metadata = ObjectMeta { name: Some(NAME.into()), namespace: Some(namespace.into()), ..Default::default() };
        let account = ServiceAccount { metadata, ..Default::default() };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        match api.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_already_exists() || is_gone(&error) => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }
}

/// Whether things may still be made in the namespace.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

/// Whether the namespace is gone, or going.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    error.is_not_found() || error.is_namespace_terminating()
}
