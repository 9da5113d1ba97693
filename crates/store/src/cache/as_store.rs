//! [`Store`] for the watch cache: cached collections are served from memory, everything else by the engine.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{CacheWatcher, CachedChange, ResourceVersionMatch, WatchCache};
use crate::{
    ListOptions, ListPage, Record, Revision, Store, StoreError, WatchItem, WatchItems, WatchOptions, WriteRequest,
};

/// Changes taken at once.
const BATCH: usize = 64;

#[async_trait]
impl Store for WatchCache {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.engine.get(key).await
    }

    async fn list(&self, range: ListOptions) -> Result<ListPage, StoreError> {
        if self.shared.catalog.collection_name(&range.prefix).is_none() {
            return self.engine.list(range).await;
        }
        let snapshot = self
            .snapshot(&range.prefix, range.at.map_or(ResourceVersionMatch::Newest, ResourceVersionMatch::Exactly))
            .await?;
        let mut items = snapshot.items_after(range.after.as_deref());
        let limit = range.limit.unwrap_or(usize::MAX);
        let records = items.by_ref().take(limit).map(|item| item.record.clone()).collect();
        let remaining = items.count();
        if remaining > 0 {
            self.keep_snapshot(&range.prefix, &snapshot);
        }
        Ok(ListPage { records, revision: snapshot.revision, remaining })
    }

    async fn write(&self, write: WriteRequest) -> Result<Revision, StoreError> {
        self.engine.write(write).await
    }

    async fn watch_items(&self, follow: WatchOptions) -> Result<WatchItems, StoreError> {
        if self.shared.catalog.collection_name(&follow.prefix).is_none() {
            return self.engine.watch_items(follow).await;
        }
        self.wait_for_revision(follow.after).await?;
        let watcher = self.watch_prefix(&follow.prefix, follow.after)?;
        let follower = CacheFollower {
            watcher,
            taken: VecDeque::new(),
            progress_interval: follow.progress_interval,
            reported: follow.after,
            reported_at: Instant::now(),
        };
        let notices = stream::unfold(Some(follower), |follower| async {
            let mut follower = follower?;
            match follower.next_item().await {
                Ok(notice) => Some((Ok(notice), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(notices.boxed())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.engine.revision().await
    }

    async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        // Compacting beyond the reflector's position would force it to reload.
        self.wait_for_revision(through).await?;
        self.engine.compact(through).await?;
        let forgettable = self.shared.history().take_through(through);
        forgettable.into_iter().for_each(|(collection, through)| collection.trim_history(through));
        Ok(())
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.engine.check_health().await
    }

    async fn disk_usage(&self) -> Result<u64, StoreError> {
        self.engine.disk_usage().await
    }

    fn supports_progress_requests(&self) -> bool {
        self.engine.supports_progress_requests()
    }
}

struct CacheFollower {
    watcher: CacheWatcher,
    taken: VecDeque<Arc<CachedChange>>,
    progress_interval: Option<Duration>,
    /// The last revision that the consumer received, and when.
    reported: Revision,
    reported_at: Instant,
}

impl CacheFollower {
    async fn next_item(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            if let Some(change) = self.taken.pop_front() {
                self.report(change.revision);
                return Ok(WatchItem::Event(change.to_event()));
            }
            self.taken = self.watcher.take_changes(BATCH)?.into();
            if !self.taken.is_empty() {
                continue;
            }
            if self.progress_interval.is_some_and(|every| self.reported_at.elapsed() >= every) {
                self.reported_at = Instant::now();
                if self.watcher.cursor() > self.reported {
                    self.report(self.watcher.cursor());
                    return Ok(WatchItem::Progress(self.reported));
                }
            }
            match self.progress_interval {
                None => self.watcher.wait_for_change().await,
                // Without a change here, the published revision may have moved.
                Some(every) => drop(timeout_at(self.reported_at + every, self.watcher.wait_for_change()).await),
            }
        }
    }

    fn report(&mut self, revision: Revision) {
        (self.reported, self.reported_at) = (revision, Instant::now());
    }
}
