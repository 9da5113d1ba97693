//! Static pods: read from a directory and a URL, run without an API server, and shown in it by mirror pods.

mod file_source;
mod manifest;
mod mirror;
mod url_source;

use std::{collections::HashMap, sync::Arc};

use client::ResourceEvent;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::{context::KubeletContext, settings::StaticPodSettings};

/// The pods of one source after a reading.
struct SourceReading {
    source: &'static str,
    pods: Vec<Arc<Pod>>,
}

/// Follows the sources for ever and sends what changes; keeps the mirror pods.
pub async fn run_static_pods(
    kubelet: Arc<KubeletContext>,
    settings: StaticPodSettings,
    events: mpsc::UnboundedSender<ResourceEvent<Pod>>,
) {
    let (sender, mut readings) = mpsc::channel(4);
    let mut missing: Vec<&'static str> = Vec::new();
    missing.extend(settings.path.as_ref().map(|_| file_source::SOURCE));
    missing.extend(settings.url.as_ref().map(|_| url_source::SOURCE));
    // The mirrors of pods that have not been read yet must stay.
    let pods = kubelet.pods.clone();
    if missing.is_empty() {
        pods.set_static_sources_read();
    }
    let merge = async move {
        let mut sources: HashMap<&'static str, Vec<Arc<Pod>>> = HashMap::new();
        while let Some(SourceReading { source, pods: read }) = readings.recv().await {
            sources.insert(source, read);
            for event in pods.set_static_pods(sources.values().flatten().cloned().collect()) {
                // The receiver ends at shutdown only.
                let _ = events.send(event);
            }
            missing.retain(|waiting| *waiting != source);
            if missing.is_empty() {
                pods.set_static_sources_read();
            }
        }
        // Without a source there is nothing to merge, but mirrors to remove.
        std::future::pending::<()>().await;
    };
    let mirrors = async {
        kubelet.pods.wait_for_all_sources().await;
        mirror::run_mirror_pods(&kubelet).await;
    };
    let node_name = kubelet.node_name.clone();
    tokio::join!(
        merge,
        mirrors,
        file_source::follow_files(&settings, &node_name, sender.clone()),
        url_source::follow_url(&settings, &node_name, sender),
    );
}
