//! A loop that keeps one object of a fixed name in every active namespace, made when it is missing and mended when it is
//! not as it should be.

use std::{fmt::Debug, sync::Arc};

use client::{ApiErrorExt, Informer, Queue, Requeue};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, api::PostParams, runtime::watcher};
use serde::{Serialize, de::DeserializeOwned};

use crate::Context;

/// What is kept in every namespace.
pub(crate) trait Kept: Send + Sync + 'static {
    /// The kind of the object.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Default
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static;

    /// Its name.
    const NAME: &'static str;

    /// Makes the object, new or current, as it should be; one that is right is left as it is.
    fn mend(&self, object: &mut Self::Object);

    /// Whether the current object needs no mending.
    fn is_right(&self, object: &Self::Object) -> bool;
}

struct Controller<T: Kept> {
    client: Client,
    namespaces: Informer<Namespace>,
    objects: Informer<T::Object>,
    kept: T,
}

/// Runs the loop until shutdown.
pub(crate) async fn run<T: Kept>(context: Context, kept: T) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", T::NAME));
    let controller = Arc::new(Controller {
        namespaces: context.informers.of(),
        objects: Informer::start(Api::all(context.informers.client().clone()), only_ours, context.shutdown.clone()),
        client: context.client,
        kept,
    });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    controller
        .namespaces
        .on_change(move |change| change.object().metadata.name.iter().for_each(|name| wake.add(name.clone())));
    let wake = queue.clone();
    controller.objects.on_change(move |change| {
        change.object().meta().namespace.iter().for_each(|namespace| wake.add(namespace.clone()));
    });
    controller.namespaces.synced().await;
    controller.objects.synced().await;
    let sync = move |namespace: String| {
        let controller = controller.clone();
        async move { controller.sync(&namespace).await }
    };
    queue.run(1, context.shutdown, sync).await;
}

impl<T: Kept> Controller<T> {
    async fn sync(&self, namespace: &str) -> Result<Requeue, kube::Error> {
        if !self.namespaces.get("", namespace).is_some_and(|namespace| is_active(&namespace)) {
            return Ok(Requeue::No);
        }
        let api: Api<T::Object> = Api::namespaced(self.client.clone(), namespace);
        let written = match self.objects.get(namespace, T::NAME) {
            Some(current) if self.kept.is_right(&current) => return Ok(Requeue::No),
            Some(current) => {
                let mut mended = T::Object::clone(&current);
                self.kept.mend(&mut mended);
                api.replace(T::NAME, &PostParams::default(), &mended).await
            }
            None => {
                let mut new = T::Object::default();
                new.meta_mut().name = Some(T::NAME.into());
                self.kept.mend(&mut new);
                api.create(&PostParams::default(), &new).await
            }
        };
        match written {
            Ok(_) => Ok(Requeue::No),
            // Somebody else was faster, or the namespace is going.
            Err(error) if error.is_already_exists() || error.is_not_found() || error.is_namespace_terminating() => {
                Ok(Requeue::No)
            }
            Err(error) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) => Err(error),
        }
    }
}

/// Whether things may still be made in the namespace.
fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}
