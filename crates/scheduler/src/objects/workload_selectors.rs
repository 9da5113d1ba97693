//! Selectors of services and workloads, which tell which pods belong together.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use client::{CachedView, SharedInformer, SharedInformerFactory, informer::CachedObject};
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    core::v1::{ReplicationController, Service},
};

use crate::{views::labels::Selector, views::pod_info::PodClass};

/// Index of services by namespace.
const BY_NAMESPACE: &str = "namespace";

/// A resource with a selector.
pub trait SelectingObject: CachedObject {
    /// The selector; `None` if it selects nothing.
    fn selector(&self) -> Option<Selector>;
}

fn from_labels(labels: Option<&BTreeMap<String, String>>) -> Option<Selector> {
    labels.map(Selector::from_labels)
}

impl SelectingObject for Service {
    fn selector(&self) -> Option<Selector> {
        from_labels(self.spec.as_ref()?.selector.as_ref())
    }
}

impl SelectingObject for ReplicationController {
    fn selector(&self) -> Option<Selector> {
        from_labels(self.spec.as_ref()?.selector.as_ref())
    }
}

impl SelectingObject for ReplicaSet {
    fn selector(&self) -> Option<Selector> {
        Some(Selector::from_label_selector(Some(&self.spec.as_ref()?.selector)))
    }
}

impl SelectingObject for StatefulSet {
    fn selector(&self) -> Option<Selector> {
        Some(Selector::from_label_selector(Some(&self.spec.as_ref()?.selector)))
    }
}

/// The selector of an object of kind `K`.
pub struct SelectorView<K> {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    selector: Option<Selector>,
    kind: PhantomData<fn() -> K>,
}

impl<K: SelectingObject> CachedView for SelectorView<K> {
    type Object = K;

    fn from_object(object: K) -> Self {
        let text = |text: Option<&String>| text.map_or("", String::as_str).into();
        let meta = object.meta();
        Self {
            namespace: text(meta.namespace.as_ref()),
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            resource_version: text(meta.resource_version.as_ref()),
            selector: object.selector(),
            kind: PhantomData,
        }
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// Finds the pods that a pod belongs to.
#[derive(Clone)]
pub struct WorkloadSelectors {
    services: SharedInformer<SelectorView<Service>>,
    controllers: SharedInformer<SelectorView<ReplicationController>>,
    replica_sets: SharedInformer<SelectorView<ReplicaSet>>,
    stateful_sets: SharedInformer<SelectorView<StatefulSet>>,
}

impl WorkloadSelectors {
    /// Starts the informers.
    pub fn new(informers: &SharedInformerFactory) -> Self {
        let services = informers.informer_for::<SelectorView<Service>>();
        services.add_index(BY_NAMESPACE, |service| vec![service.namespace.to_string()]);
        Self {
            services,
            controllers: informers.informer_for(),
            replica_sets: informers.informer_for(),
            stateful_sets: informers.informer_for(),
        }
    }

    /// Returns the selector of the pods that belong to the pod's services and controller; empty if there are none.
    pub fn selector_of(&self, class: &PodClass) -> Selector {
        let mut selector = Selector::All(Box::default());
        for service in self.services.by_index(BY_NAMESPACE, &class.namespace) {
            if let Some(own) = service.selector.as_ref().filter(|own| own.matches(&class.labels)) {
                selector = selector.and(own);
            }
        }
        match self.controller_selector(class) {
            Some(own) => selector.and(&own),
            None => selector,
        }
    }

    fn controller_selector(&self, class: &PodClass) -> Option<Selector> {
        let (api_version, kind, name) = class.controller.as_ref()?;
        let namespace = &class.namespace;
        fn selector<K>(found: Option<Arc<SelectorView<K>>>) -> Option<Selector> {
            found?.selector.clone()
        }
        match (api_version.as_ref(), kind.as_ref()) {
            ("v1", "ReplicationController") => selector(self.controllers.get(namespace, name)),
            ("apps/v1", "ReplicaSet") => selector(self.replica_sets.get(namespace, name)),
            ("apps/v1", "StatefulSet") => selector(self.stateful_sets.get(namespace, name)),
            _ => None,
        }
    }

    /// Waits for the first lists.
    pub async fn wait_for_sync(&self) {
        self.services.wait_for_cache_sync().await;
        self.controllers.wait_for_cache_sync().await;
        self.replica_sets.wait_for_cache_sync().await;
        self.stateful_sets.wait_for_cache_sync().await;
    }
}
