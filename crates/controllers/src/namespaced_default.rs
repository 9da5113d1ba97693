//! A controller that maintains one object of a fixed name in every active namespace.

use std::{fmt::Debug, sync::Arc};

use client::{ApiErrorExt, RequeueAction, SharedInformer, WorkQueue};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, api::PostParams, runtime::watcher};
use serde::{Serialize, de::DeserializeOwned};

use crate::ControllerContext;

/// An object that every active namespace has.
pub(crate) trait NamespacedDefault: Send + Sync + 'static {
    /// The object's type.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Default
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static;

    /// The object's name.
    const NAME: &'static str;

    /// Sets the desired contents on a new or existing object.
    fn apply(&self, object: &mut Self::Object);

    /// Whether an existing object has the desired contents.
    fn is_up_to_date(&self, object: &Self::Object) -> bool;
}

struct NamespacedDefaultController<T: NamespacedDefault> {
    client: Client,
    namespaces: SharedInformer<Namespace>,
    objects: SharedInformer<T::Object>,
    default_object: T,
}

/// Runs the controller until shutdown.
pub(crate) async fn run<T: NamespacedDefault>(context: ControllerContext, kept: T) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", T::NAME));
    let controller = Arc::new(NamespacedDefaultController {
        namespaces: context.informers.informer_for(),
        objects: SharedInformer::start(
            Api::all(context.informers.client().clone()),
            only_ours,
            context.shutdown.clone(),
        ),
        client: context.client,
        default_object: kept,
    });
    let queue: WorkQueue<String> = WorkQueue::new();
    let wake = queue.clone();
    controller
        .namespaces
        .add_event_handler(move |change| change.object().metadata.name.iter().for_each(|name| wake.add(name.clone())));
    let wake = queue.clone();
    controller.objects.add_event_handler(move |change| {
        change.object().meta().namespace.iter().for_each(|namespace| wake.add(namespace.clone()));
    });
    controller.namespaces.wait_for_cache_sync().await;
    controller.objects.wait_for_cache_sync().await;
    let sync = move |namespace: String| {
        let controller = controller.clone();
        async move { controller.sync_namespace(&namespace).await }
    };
    queue.run_workers(1, context.shutdown, sync).await;
}

impl<T: NamespacedDefault> NamespacedDefaultController<T> {
    async fn sync_namespace(&self, namespace: &str) -> Result<RequeueAction, kube::Error> {
        if !self.namespaces.get("", namespace).is_some_and(|namespace| is_namespace_active(&namespace)) {
            return Ok(RequeueAction::AwaitChange);
        }
        let api: Api<T::Object> = Api::namespaced(self.client.clone(), namespace);
        let written = match self.objects.get(namespace, T::NAME) {
            Some(current) if self.default_object.is_up_to_date(&current) => return Ok(RequeueAction::AwaitChange),
            Some(current) => {
                let mut mended = T::Object::clone(&current);
                self.default_object.apply(&mut mended);
                api.replace(T::NAME, &PostParams::default(), &mended).await
            }
            None => {
                let mut new = T::Object::default();
                new.meta_mut().name = Some(T::NAME.into());
                self.default_object.apply(&mut new);
                api.create(&PostParams::default(), &new).await
            }
        };
        match written {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            // Another writer was faster, or the namespace is terminating.
            Err(error) if error.is_already_exists() || error.is_not_found() || error.is_namespace_terminating() => {
                Ok(RequeueAction::AwaitChange)
            }
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) => Err(error),
        }
    }
}

/// Whether the namespace accepts new objects.
fn is_namespace_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}
