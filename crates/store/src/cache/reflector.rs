//! The reflector: loads all collections once, then applies the engine's changes for as long as the cache exists.
//!
//! It starts as far back as the engine's history reaches, so that watches resume across a restart. If the engine compacts
//! past its position, it reloads, and existing watchers end with `Compacted`.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use futures::StreamExt;

use super::{CacheState, item::CachedItem};
use crate::{ListOptions, Revision, Store, StoreError, StoreEvent, WatchItem, WatchItems, WatchOptions};

/// Records loaded at once.
const PAGE: usize = 10_000;
/// Changes applied before they are published.
const CHUNK: usize = 256;
/// Revisions of history that are read at start.
const HISTORY_AT_START: Revision = 10_000;
/// Attempts to load at a revision that the engine may compact meanwhile.
const ATTEMPTS: usize = 5;
/// Interval of progress notifications from an idle engine.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Loads all records as of the oldest revision within [`HISTORY_AT_START`].
pub(super) async fn load_collections(shared: &CacheState, engine: &dyn Store) -> Result<(), StoreError> {
    let current = engine.revision().await?;
    let mut at = Some(current.saturating_sub(HISTORY_AT_START).max(1)).filter(|at| *at <= current);
    for _ in 0..ATTEMPTS {
        match load_at(shared, engine, at).await {
            Err(StoreError::Compacted { oldest, .. }) => at = Some(oldest).filter(|oldest| *oldest <= current),
            loaded => return loaded,
        }
    }
    load_at(shared, engine, None).await
}

async fn load_at(shared: &CacheState, engine: &dyn Store, at: Option<Revision>) -> Result<(), StoreError> {
    let mut range = ListOptions { limit: Some(PAGE), at, ..ListOptions::default() };
    let mut loaded: HashMap<Box<str>, Vec<Arc<CachedItem>>> = HashMap::new();
    loop {
        let page = engine.list(range.clone()).await?;
        range.at = Some(page.revision);
        range.after = page.records.last().map(|record| record.key.to_string());
        for record in page.records {
            let Some(name) = shared.catalog.collection_name(&record.key) else { continue };
            let item = Arc::new(shared.build_item(record.clone()));
            match loaded.get_mut(name) {
                Some(items) => items.push(item),
                None => drop(loaded.insert(name.into(), vec![item])),
            }
        }
        if page.remaining == 0 {
            shared.replace_all(loaded, page.revision);
            return Ok(());
        }
    }
}

/// Follows the engine until it is closed or gone.
pub(super) async fn run_reflector(shared: Arc<CacheState>, engine: Weak<dyn Store>) {
    let mut pause = MIN_BACKOFF;
    while let Some(strong) = engine.upgrade() {
        let after = shared.published();
        let follow = WatchOptions {
            prefix: String::new(),
            after,
            progress_interval: Some(PROGRESS_INTERVAL),
            progress_request: Some(shared.progress_request.clone()),
        };
        let outcome = match strong.watch_items(follow).await {
            Ok(notices) => {
                drop(strong);
                apply_items(&shared, notices).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return };
        tracing::warn!(%error, "watch cache: store watch failed, restarting");
        if matches!(error, StoreError::Compacted { .. }) {
            reload(&shared, &engine).await;
        }
        // Progress since the last failure resets the back-off.
        pause = if shared.published() > after { MIN_BACKOFF } else { (pause * 2).min(MAX_BACKOFF) };
        tokio::time::sleep(pause).await;
    }
}

async fn reload(shared: &CacheState, engine: &Weak<dyn Store>) {
    let Some(engine) = engine.upgrade() else { return };
    if let Err(error) = load_at(shared, &*engine, None).await {
        tracing::warn!(%error, "watch cache: reload failed, retrying");
    }
}

/// Applies watch items in chunks of those that are ready.
async fn apply_items(shared: &CacheState, notices: WatchItems) -> Result<(), StoreError> {
    let mut chunks = notices.ready_chunks(CHUNK);
    while let Some(chunk) = chunks.next().await {
        let mut failed = Ok(());
        let mut events = Vec::with_capacity(chunk.len());
        let mut reached = 0;
        for notice in chunk {
            match notice {
                Ok(WatchItem::Event(event)) => {
                    reached = event.revision;
                    events.push(event);
                }
                Ok(WatchItem::Progress(revision)) => reached = revision,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        shared.apply_events(events, reached);
        failed?;
    }
    Ok(())
}

impl CacheState {
    /// Applies changes in order, then publishes them.
    fn apply_events(&self, events: Vec<StoreEvent>, reached: Revision) {
        let now = Instant::now();
        let mut touched = HashMap::new();
        for event in events {
            let Some(name) = self.catalog.collection_name(&event.key) else { continue };
            let collection = self.collection_by_name(name);
            let StoreEvent { revision, key, value, .. } = event;
            let item = value.map(|value| self.build_item(crate::Record { key: key.clone(), value, revision }));
            if let Some(change) = collection.apply_change(revision, &key, item) {
                self.history().push_change(collection.clone(), &change, now);
            }
            touched.insert(Arc::as_ptr(&collection), collection);
        }
        // Wakes before publishing: a watcher that waits for the revision finds the changes.
        touched.into_values().for_each(|collection| collection.wake_watchers());
        self.publish_revision(reached);
        let expired = self.history().take_expired(now);
        expired.into_iter().for_each(|(collection, through)| collection.trim_history(through));
    }
}
