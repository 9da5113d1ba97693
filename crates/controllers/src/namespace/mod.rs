//! namespace-controller: deletes the content of terminating namespaces, pods first, then the namespace.

mod conditions;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    discovery::verbs,
};

use self::conditions::RemainingContent;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::{self, DiscoveredResource},
    pod_view::PodView,
};

const KUBERNETES_FINALIZER: &str = "kubernetes";
/// Recheck interval while pods terminate; their deletion events queue the namespace too.
const PODS_REMAIN_RETRY: Duration = Duration::from_secs(5);
/// Recheck interval while other objects wait for their finalizers.
const OBJECTS_REMAIN_RETRY: Duration = Duration::from_secs(1);

struct NamespaceController {
    client: Client,
    namespaces: SharedInformer<Namespace>,
    pods: SharedInformer<PodView>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| NamespaceController {
        namespaces: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for NamespaceController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 4;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.namespaces, |_, event, queue| {
            let meta = &event.object().metadata;
            let is_deleted = matches!(event, ResourceEvent::Deleted(_));
            if let (Some(name), Some(_), false) = (&meta.name, &meta.deletion_timestamp, is_deleted) {
                queue.add(name.clone());
            }
        });
        watches.add(&self.pods, |this, event, queue| {
            if let ResourceEvent::Deleted(pod) = event
                && let Some(namespace) = &pod.metadata.namespace
                && this.terminating_namespace(namespace).is_some()
            {
                queue.add(namespace.clone());
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        self.sync_namespace(name).await
    }
}

impl NamespaceController {
    fn terminating_namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get("", name).filter(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    async fn sync_namespace(&self, name: &str) -> Result<RequeueAction, kube::Error> {
        let Some(namespace) = self.terminating_namespace(name) else { return Ok(RequeueAction::AwaitChange) };
        if !has_kubernetes_finalizer(&namespace) {
            return self.delete_namespace(&namespace).await;
        }
        let remaining = self.delete_all_content(name).await?;
        conditions::write_conditions(&self.client, &namespace, &remaining).await?;
        if remaining.pods > 0 {
            return Ok(RequeueAction::After(PODS_REMAIN_RETRY));
        }
        if !remaining.undiscovered.is_empty() {
            return Ok(RequeueAction::Backoff);
        }
        if !remaining.is_empty() {
            return Ok(RequeueAction::After(OBJECTS_REMAIN_RETRY));
        }
        self.finalize_namespace(name).await
    }

    /// Deletes all content and returns what remains.
    async fn delete_all_content(&self, namespace: &str) -> Result<RemainingContent, kube::Error> {
        let api = discovery::discover_api(&self.client).await?;
        let mut remaining = RemainingContent::with_undiscovered(api.failed);
        let namespaced = api
            .resources
            .into_iter()
            .filter(|kind| kind.is_namespaced() && kind.supports_verbs(&[verbs::LIST, verbs::DELETE]));
        let (pods, others): (Vec<_>, Vec<_>) = namespaced.partition(|kind| kind.group_resource() == "pods.");
        for kind in &pods {
            remaining.pods += self.delete_resource_content(kind, namespace, &mut remaining).await;
        }
        if remaining.pods > 0 {
            return Ok(remaining);
        }
        for kind in &others {
            self.delete_resource_content(kind, namespace, &mut remaining).await;
        }
        Ok(remaining)
    }

    /// Deletes the objects of one resource; a failure is recorded and does not stop the others.
    async fn delete_resource_content(
        &self,
        kind: &DiscoveredResource,
        namespace: &str,
        remaining: &mut RemainingContent,
    ) -> usize {
        match self.delete_all_of_resource(kind, namespace).await {
            Ok(left) => remaining.record_resource(kind, left),
            Err(error) => {
                remaining.failures.push(error.server_message());
                0
            }
        }
    }

    /// Deletes all objects of a resource and returns the finalizers of each remaining one.
    async fn delete_all_of_resource(
        &self,
        kind: &DiscoveredResource,
        namespace: &str,
    ) -> Result<Vec<Vec<String>>, kube::Error> {
        let api = kind.dynamic_api(&self.client, namespace);
        let listed = api.list_metadata(&ListParams::default()).await?;
        if listed.items.is_empty() {
            return Ok(Vec::new());
        }
        let how = DeleteParams::background();
        if kind.supports_verbs(&[verbs::DELETE_COLLECTION]) {
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

    /// Removes the `kubernetes` finalizer, which lets the server delete the namespace.
    async fn finalize_namespace(&self, name: &str) -> Result<RequeueAction, kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let Some(mut namespace) = api.get_opt(name).await? else { return Ok(RequeueAction::AwaitChange) };
        if namespace.metadata.deletion_timestamp.is_none() || !has_kubernetes_finalizer(&namespace) {
            return Ok(RequeueAction::AwaitChange);
        }
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != KUBERNETES_FINALIZER);
        }
        match api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) => Err(error),
        }
    }

    /// Deletes a namespace without finalizers that still exists.
    async fn delete_namespace(&self, namespace: &Namespace) -> Result<RequeueAction, kube::Error> {
        let others =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|all| !all.is_empty());
        if others || namespace.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
            return Ok(RequeueAction::AwaitChange);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let this_one = Preconditions { uid: namespace.meta().uid.clone(), ..Default::default() };
        let name = namespace.metadata.name.as_deref().unwrap_or("");
        match api.delete(name, &DeleteParams::default().preconditions(this_one)).await {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }
}

fn has_kubernetes_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == KUBERNETES_FINALIZER))
}
