//! The cluster's CA certificate as ConfigMap `kube-root-ca.crt` in every active namespace, restored when it is changed.

use std::{collections::BTreeMap, sync::Arc};

use client::{ApiErrorExt, Informer, Queue, Requeue};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::watcher,
};

use crate::{
    Context,
    service_account::{is_active, is_gone},
};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions \
    of Kubernetes clusters.";

struct Controller {
    client: Client,
    namespaces: Informer<Namespace>,
    config_maps: Informer<ConfigMap>,
    data: BTreeMap<String, String>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let controller = Arc::new(Controller {
        namespaces: context.informers.of(),
        config_maps: Informer::start(Api::all(context.client.clone()), only_ours, context.shutdown.clone()),
        data: [("ca.crt".to_owned(), context.options.root_ca.clone())].into(),
        client: context.client,
    });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    controller
        .namespaces
        .on_change(move |change| change.object().metadata.name.iter().for_each(|name| wake.add(name.clone())));
    let wake = queue.clone();
    controller.config_maps.on_change(move |change| {
        change.object().metadata.namespace.iter().for_each(|namespace| wake.add(namespace.clone()));
    });
    controller.namespaces.synced().await;
    controller.config_maps.synced().await;
    let sync = move |namespace: String| {
        let controller = controller.clone();
        async move { controller.sync(&namespace).await }
    };
    queue.run(1, context.shutdown, sync).await;
}

impl Controller {
    async fn sync(&self, namespace: &str) -> Result<Requeue, kube::Error> {
        if !self.namespaces.get("", namespace).is_some_and(|namespace| is_active(&namespace)) {
            return Ok(Requeue::No);
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let written = match self.config_maps.get(namespace, NAME) {
            None => api.create(&PostParams::default(), &self.describe(namespace)).await,
            Some(current) if self.is_right(&current) => return Ok(Requeue::No),
            Some(current) => {
                let mut update = ConfigMap::clone(&current);
                update.data = Some(self.data.clone());
                update.metadata.annotations.get_or_insert_default().insert(DESCRIPTION.into(), DESCRIPTION_TEXT.into());
                api.replace(NAME, &PostParams::default(), &update).await
            }
        };
        match written {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_already_exists() || is_gone(&error) => Ok(Requeue::No),
            Err(error) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) => Err(error),
        }
    }

    fn is_right(&self, current: &ConfigMap) -> bool {
        let described = current.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(DESCRIPTION));
        described && current.data.as_ref() == Some(&self.data)
    }

    fn describe(&self, namespace: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(NAME.into()),
            namespace: Some(namespace.into()),
            annotations: Some([(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned())].into()),
            ..Default::default()
        };
        ConfigMap { metadata, data: Some(self.data.clone()), ..Default::default() }
    }
}
