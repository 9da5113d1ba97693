//! Mirror pods: one pod in the API server for each static pod, with the same spec.
//!
//! A mirror that is deleted is created again; one of a changed or removed static pod is deleted.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, api::PostParams};

use crate::{
    context::{KubeletContext, format_pod, pod_name, pod_namespace, pod_uid},
    pod_manager::{MIRROR_ANNOTATION, is_mirror_pod},
    pod_termination::delete_pod_object,
    status_writer::has_status_code,
};

/// Delay before failed writes are repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Keeps the mirror pods for ever.
pub async fn run_mirror_pods(kubelet: &KubeletContext) {
    kubelet.pods.wait_for_cache_sync().await;
    kubelet.node.wait_for_cache_sync().await;
    loop {
        let complete = sync_mirror_pods(kubelet).await;
        let changed = kubelet.pods.wait_for_mirror_changes();
        if complete {
            changed.await;
        } else {
            // A change or the delay, whichever is first.
            let _ = tokio::time::timeout(RETRY_DELAY, changed).await;
        }
    }
}

/// Creates and deletes mirror pods; returns whether all are as they should be.
async fn sync_mirror_pods(kubelet: &KubeletContext) -> bool {
    let mut complete = true;
    let wanted = kubelet.pods.static_pods();
    for pod in &wanted {
        match kubelet.pods.api_pod(pod_namespace(pod), pod_name(pod)) {
            None => complete &= create_mirror_pod(kubelet, pod).await,
            Some(existing) if !is_mirror_pod(&existing) => {}
            Some(existing) if kubelet.pods.mirror_of(pod).is_none() => {
                // Its deletion is an event, after which a new one is created.
                complete &= delete_pod_object(kubelet, &existing).await;
            }
            Some(_) => {}
        }
    }
    let is_wanted = |mirror: &Arc<Pod>| {
        wanted.iter().any(|pod| pod_name(pod) == pod_name(mirror) && pod_namespace(pod) == pod_namespace(mirror))
    };
    for mirror in kubelet.pods.mirror_pods().into_iter().filter(|mirror| !is_wanted(mirror)) {
        let annotations = mirror.metadata.annotations.as_ref();
        let of = annotations.and_then(|annotations| annotations.get(MIRROR_ANNOTATION));
        // While its containers end, the mirror shows it.
        if !of.is_some_and(|uid| kubelet.pods.is_active(uid)) {
            complete &= delete_pod_object(kubelet, &mirror).await;
        }
    }
    complete
}

async fn create_mirror_pod(kubelet: &KubeletContext, pod: &Pod) -> bool {
    let Some(node_uid) = kubelet.node.list().first().and_then(|node| node.metadata.uid.clone()) else { return false };
    let pods: Api<Pod> = Api::namespaced(kubelet.client.clone(), pod_namespace(pod));
    match pods.create(&PostParams::default(), &mirror_pod(pod, &kubelet.node_name, node_uid)).await {
        Ok(_) => true,
        Err(error) if has_status_code(&error, 409) => true,
        Err(error) => {
            tracing::warn!(pod = format_pod(pod), %error, "kubelet: mirror pod not created, retrying");
            false
        }
    }
}

/// Builds the mirror of a static pod.
fn mirror_pod(pod: &Pod, node_name: &str, node_uid: String) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(MIRROR_ANNOTATION.into(), pod_uid(pod).into());
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node_name.into(),
        uid: node_uid,
        controller: Some(true),
        ..Default::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}
