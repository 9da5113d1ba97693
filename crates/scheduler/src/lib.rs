//! The scheduler: gives every pod without a node the best node that fits, and binds it there through the API.

use client::Informers;
use tokio_util::sync::CancellationToken;

/// Schedules pods whose `schedulerName` is `default-scheduler` until `shutdown`.
pub async fn run(_client: kube::Client, _informers: Informers, shutdown: CancellationToken) {
    shutdown.cancelled().await;
}
