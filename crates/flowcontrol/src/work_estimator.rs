//! Estimates the seats of a request: one; for lists, one per hundred objects.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use apiserver_core::{document, request::ResourceRequest};

use super::RequestDigest;

const OBJECTS_PER_SEAT: usize = 100;
const MAX_SEATS: usize = 10;
/// TTL of an object count.
const FRESH: Duration = Duration::from_secs(1);

/// Object counts of collections.
#[derive(Default)]
pub struct WorkEstimator {
    counts: Mutex<HashMap<&'static str, (Instant, usize)>>,
}

impl WorkEstimator {
    /// Returns the seats of a request.
    pub async fn estimate_seats(&self, store: &dyn store::Store, digest: &RequestDigest<'_>) -> usize {
        match digest {
            RequestDigest::Resource(target) if matches!(target.verb, "list" | "watch") && target.name.is_empty() => {
                self.estimate_list_seats(store, target).await
            }
            _ => 1,
        }
    }

    async fn estimate_list_seats(&self, store: &dyn store::Store, target: &ResourceRequest) -> usize {
        if target.verb == "watch" && target.query.get("resourceVersion").is_some_and(|revision| revision != "0") {
            return 1;
        }
        let stored = self.object_count(store, target).await;
        let limit = target.query.get("limit").and_then(|limit| limit.parse::<usize>().ok()).filter(|limit| *limit > 0);
        let selects = target.query.get("labelSelector").is_some() || target.query.get("fieldSelector").is_some();
        let read = if selects { stored } else { limit.map_or(stored, |limit| stored.min(limit)) };
        read.div_ceil(OBJECTS_PER_SEAT).clamp(1, MAX_SEATS)
    }

    async fn object_count(&self, store: &dyn store::Store, target: &ResourceRequest) -> usize {
        let name = target.resource.name;
        let known = self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        if let Some((_, count)) = known.filter(|(at, _)| at.elapsed() < FRESH) {
            return count;
        }
        let range = store::ListOptions {
            prefix: document::storage_key(&target.resource, "", ""),
            limit: Some(1),
            ..Default::default()
        };
        // A store error is reported by the list itself.
        let count = store.list(range).await.map_or(0, |page| page.records.len() + page.remaining);
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).insert(name, (Instant::now(), count));
        count
    }
}
