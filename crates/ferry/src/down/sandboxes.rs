//! Removes the cluster's pods through the runtime, which also gives back their network.
//!
//! On a runtime of the cluster's own, all pods are the cluster's. On another, those are whose uid the kubelet has a
//! directory of logs or volumes for.

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context, anyhow};
use futures::{StreamExt, stream};
use runtime::cri::{CriClient, types::PodSandbox};

use crate::{containerd, instance::ClusterInstance, own_runtime, runtime_check, state::InstanceState};

/// Pods removed concurrently.
const AT_ONCE: usize = 8;

/// Removes them; says how many.
pub fn remove_sandboxes(instance: &ClusterInstance, state: &InstanceState) -> anyhow::Result<String> {
    let Some(endpoint) = &state.runtime_endpoint else { return Ok(String::new()) };
    if state.ferry_runtime {
        return remove_own(instance);
    }
    if state.own_runtime && containerd::process(instance).is_none() {
        // What a dead containerd left is found without it in the steps that follow.
        return Ok(String::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let removed = runtime.block_on(remove_all(instance, endpoint, state.own_runtime));
    match removed {
        Ok(0) => Ok(String::new()),
        Ok(count) => Ok(format!("{count} removed")),
        Err(error) if state.own_runtime => {
            tracing::warn!(error = format!("{error:#}"), "the runtime did not remove the pods");
            Ok("not removed by the runtime; they are ended below".into())
        }
        Err(error) => Err(error.context(format!("the pods on {endpoint} could not be removed"))),
    }
}

/// Removes the pods of the runtime in this program, which ended with ferry: it runs here meanwhile.
fn remove_own(instance: &ClusterInstance) -> anyhow::Result<String> {
    if !instance.runtime().exists() {
        return Ok(String::new());
    }
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let count = threads.block_on(async {
        let listener = runtime::server::start_runtime(own_runtime::runtime_options(instance)).await?;
        let shutdown = tokio_util::sync::CancellationToken::new();
        let _ended = shutdown.clone().drop_guard();
        tokio::spawn(listener.serve(shutdown));
        remove_all(instance, &instance.runtime_endpoint(), true).await
    })?;
    Ok(if count == 0 { String::new() } else { format!("{count} removed") })
}

async fn remove_all(instance: &ClusterInstance, endpoint: &str, all: bool) -> anyhow::Result<usize> {
    let cri = runtime_check::connect_cri(endpoint).await?;
    let mut sandboxes = cri.list_sandboxes(HashMap::new()).await?;
    sandboxes.retain(|sandbox| all || is_ours(instance, sandbox));
    let count = sandboxes.len();
    let outcomes: Vec<anyhow::Result<()>> = stream::iter(sandboxes)
        .map(|sandbox| {
            let cri = cri.clone();
            async move { remove_one(&cri, &sandbox.id).await }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failures: Vec<String> =
        outcomes.into_iter().filter_map(|outcome| outcome.err().map(|error| format!("{error:#}"))).collect();
    if failures.is_empty() { Ok(count) } else { Err(anyhow!(failures.join("; "))) }
}

async fn remove_one(cri: &CriClient, id: &str) -> anyhow::Result<()> {
    cri.stop_sandbox(id).await.with_context(|| format!("sandbox {id}"))?;
    cri.remove_sandbox(id).await.with_context(|| format!("sandbox {id}"))
}

fn is_ours(instance: &ClusterInstance, sandbox: &PodSandbox) -> bool {
    let Some(metadata) = &sandbox.metadata else { return false };
    let logs = format!("{}_{}_{}", metadata.namespace, metadata.name, metadata.uid);
    let volumes = instance.kubelet().join("pods").join(&metadata.uid);
    let exists = |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_dir());
    !metadata.uid.is_empty() && (exists(&instance.pod_logs().join(logs)) || exists(&volumes))
}
