//! A controller that maintains one object of a fixed name in every active namespace.

use std::fmt::Debug;

use client::{ApiErrorExt, RequeueAction, SharedInformer};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, api::PostParams, runtime::watcher};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

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
pub(crate) async fn run<T: NamespacedDefault>(context: ControllerContext, default_object: T) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", T::NAME));
    let objects = Api::all(context.informers.client().clone());
    let build = |_| NamespacedDefaultController {
        namespaces: context.informers.informer_for(),
        objects: SharedInformer::start(objects, only_ours, context.shutdown.clone()),
        client: context.client.clone(),
        default_object,
    };
    run_controller(&context, build).await;
}

impl<T: NamespacedDefault> Controller for NamespacedDefaultController<T> {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.namespaces, |_, event, queue| {
            event.object().metadata.name.iter().for_each(|name| queue.add(name.clone()));
        });
        watches.add(&self.objects, |_, event, queue| {
            event.object().meta().namespace.iter().for_each(|namespace| queue.add(namespace.clone()));
        });
    }

    async fn sync(&self, namespace: &String) -> Result<RequeueAction, kube::Error> {
        self.sync_namespace(namespace).await
    }
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
                let mut updated = T::Object::clone(&current);
                self.default_object.apply(&mut updated);
                api.replace(T::NAME, &PostParams::default(), &updated).await
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
