//! Namespaces that are being deleted: everything in them goes, the pods first, then the namespace itself.

mod conditions;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, Change, Informer, Queue, Requeue};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    discovery::verbs,
};

use self::conditions::Remaining;
use crate::{
    Context,
    discovery::{self, Kind},
};

const WORKERS: usize = 4;
const FINALIZER: &str = "kubernetes";
/// When to look again at a namespace whose last pods are still ending; the end of each wakes it too.
const PODS_REMAIN: Duration = Duration::from_secs(5);
/// When to look again at a namespace where other things wait for their finalizers.
const OBJECTS_REMAIN: Duration = Duration::from_secs(1);

struct Controller {
    client: Client,
    namespaces: Informer<Namespace>,
    queue: Queue<String>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller {
        namespaces: context.informers.of(),
        queue: Queue::new(),
        client: context.client.clone(),
    });
    let pods: Informer<Pod> = context.informers.of();
    controller.watch(&pods);
    controller.namespaces.synced().await;
    let worker = controller.clone();
    let sync = move |name: String| {
        let controller = worker.clone();
        async move { controller.sync(&name).await }
    };
    controller.queue.run(WORKERS, context.shutdown, sync).await;
}

impl Controller {
    fn watch(self: &Arc<Self>, pods: &Informer<Pod>) {
        let queue = self.queue.clone();
        self.namespaces.on_change(move |change| {
            let meta = &change.object().metadata;
            if let (Some(name), Some(_), false) =
                (&meta.name, &meta.deletion_timestamp, matches!(change, Change::Deleted(_)))
            {
                queue.add(name.clone());
            }
        });
        let this = self.clone();
        pods.on_change(move |change| {
            if let Change::Deleted(pod) = change
                && let Some(namespace) = &pod.metadata.namespace
                && this.terminating(namespace).is_some()
            {
                this.queue.add(namespace.clone());
            }
        });
    }

    fn terminating(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get("", name).filter(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    async fn sync(&self, name: &str) -> Result<Requeue, kube::Error> {
        let Some(namespace) = self.terminating(name) else { return Ok(Requeue::No) };
        if !has_finalizer(&namespace) {
            return self.delete(&namespace).await;
        }
        let remaining = self.empty(name).await?;
        conditions::write(&self.client, &namespace, &remaining).await?;
        if remaining.pods > 0 {
            return Ok(Requeue::After(PODS_REMAIN));
        }
        if !remaining.is_nothing() {
            return Ok(Requeue::After(OBJECTS_REMAIN));
        }
        self.finalize(name).await
    }

    /// Deletes everything there is, and says what is left.
    async fn empty(&self, namespace: &str) -> Result<Remaining, kube::Error> {
        let kinds = discovery::kinds(&self.client).await?;
        let namespaced =
            kinds.into_iter().filter(|kind| kind.is_namespaced() && kind.supports(&[verbs::LIST, verbs::DELETE]));
        let (pods, others): (Vec<_>, Vec<_>) = namespaced.partition(|kind| kind.name() == "pods.");
        let mut remaining = Remaining::default();
        for kind in &pods {
            remaining.pods += self.empty_kind(kind, namespace, &mut remaining).await;
        }
        if remaining.pods > 0 {
            return Ok(remaining);
        }
        for kind in &others {
            self.empty_kind(kind, namespace, &mut remaining).await;
        }
        Ok(remaining)
    }

    /// A kind that fails is noted and does not keep the others from going.
    async fn empty_kind(&self, kind: &Kind, namespace: &str, remaining: &mut Remaining) -> usize {
        match self.delete_all(kind, namespace).await {
            Ok(left) => remaining.note(kind, left),
            Err(error) => {
                remaining.failures.push(error.reply());
                0
            }
        }
    }

    /// Deletes all objects of a kind and returns the finalizers of each that is left.
    async fn delete_all(&self, kind: &Kind, namespace: &str) -> Result<Vec<Vec<String>>, kube::Error> {
        let api = kind.api(&self.client, namespace);
        let listed = api.list_metadata(&ListParams::default()).await?;
        if listed.items.is_empty() {
            return Ok(Vec::new());
        }
        let how = DeleteParams::background();
        if kind.supports(&[verbs::DELETE_COLLECTION]) {
            api.delete_collection(&how, &ListParams::default()).await?;
        } else {
            for object in listed.items {
                match api.delete(object.metadata.name.as_deref().unwrap_or(""), &how).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        let left = api.list_metadata(&ListParams::default()).await?;
        Ok(left.items.into_iter().map(|object| object.metadata.finalizers.unwrap_or_default()).collect())
    }

    /// Says that this controller is done with the namespace, which the server then removes.
    async fn finalize(&self, name: &str) -> Result<Requeue, kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let Some(mut namespace) = api.get_opt(name).await? else { return Ok(Requeue::No) };
        if namespace.metadata.deletion_timestamp.is_none() || !has_finalizer(&namespace) {
            return Ok(Requeue::No);
        }
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        match api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_not_found() => Ok(Requeue::No),
            Err(error) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) => Err(error),
        }
    }

    /// A namespace without finalizers that still exists is deleted once more.
    async fn delete(&self, namespace: &Namespace) -> Result<Requeue, kube::Error> {
        let others =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|all| !all.is_empty());
        if others || namespace.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
            return Ok(Requeue::No);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let this_one = Preconditions { uid: namespace.meta().uid.clone(), ..Default::default() };
        let name = namespace.metadata.name.as_deref().unwrap_or("");
        match api.delete(name, &DeleteParams::default().preconditions(this_one)).await {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER))
}
