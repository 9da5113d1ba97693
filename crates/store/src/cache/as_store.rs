//! The cache as a store: what it has it answers, the rest goes to the engine.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{At, Cache, Change, Watcher};
use crate::{Error, Follow, Notice, Notices, Page, Range, Record, Revision, Store, Write};

/// How many changes a follower takes at once.
const BATCH: usize = 64;

#[async_trait]
impl Store for Cache {
    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        self.engine.get(key).await
    }

    async fn list(&self, range: Range) -> Result<Page, Error> {
        if self.shared.catalog.collection(&range.prefix).is_none() {
            return self.engine.list(range).await;
        }
        let snapshot = self.snapshot(&range.prefix, range.at.map_or(At::Newest, At::Exactly)).await?;
        let mut items = snapshot.after(range.after.as_deref());
        let limit = range.limit.unwrap_or(usize::MAX);
        let records = items.by_ref().take(limit).map(|item| item.record.clone()).collect();
        let remaining = items.count();
        if remaining > 0 {
            self.keep(&range.prefix, &snapshot);
        }
        Ok(Page { records, revision: snapshot.revision, remaining })
    }

    async fn write(&self, write: Write) -> Result<Revision, Error> {
        self.engine.write(write).await
    }

    async fn follow(&self, follow: Follow) -> Result<Notices, Error> {
        if self.shared.catalog.collection(&follow.prefix).is_none() {
            return self.engine.follow(follow).await;
        }
        self.has_reached(follow.after).await?;
        let watcher = self.watch(&follow.prefix, follow.after)?;
        let follower = Follower {
            watcher,
            taken: VecDeque::new(),
            every: follow.progress,
            told: follow.after,
            at: Instant::now(),
        };
        let notices = stream::unfold(Some(follower), |follower| async {
            let mut follower = follower?;
            match follower.next().await {
                Ok(notice) => Some((Ok(notice), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(notices.boxed())
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.engine.revision().await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        // What the feed has not taken in yet it would have to load anew.
        self.has_reached(through).await?;
        self.engine.compact(through).await?;
        let forgettable = self.shared.history().through(through);
        forgettable.into_iter().for_each(|(collection, through)| collection.forget(through));
        Ok(())
    }

    async fn health(&self) -> Result<(), Error> {
        self.engine.health().await
    }

    async fn size(&self) -> Result<u64, Error> {
        self.engine.size().await
    }

    fn tells_progress(&self) -> bool {
        self.engine.tells_progress()
    }
}

struct Follower {
    watcher: Watcher,
    taken: VecDeque<Arc<Change>>,
    every: Option<Duration>,
    /// What the consumer knows of the position, and since when.
    told: Revision,
    at: Instant,
}

impl Follower {
    async fn next(&mut self) -> Result<Notice, Error> {
        loop {
            if let Some(change) = self.taken.pop_front() {
                self.tell(change.revision);
                return Ok(Notice::Event(change.event()));
            }
            self.taken = self.watcher.take(BATCH)?.into();
            if !self.taken.is_empty() {
                continue;
            }
            if self.every.is_some_and(|every| self.at.elapsed() >= every) {
                self.at = Instant::now();
                if self.watcher.cursor() > self.told {
                    self.tell(self.watcher.cursor());
                    return Ok(Notice::Progress(self.told));
                }
            }
            match self.every {
                None => self.watcher.changed().await,
                // Nothing changed: how far the others went is worth a look too.
                Some(every) => drop(timeout_at(self.at + every, self.watcher.changed()).await),
            }
        }
    }

    fn tell(&mut self, revision: Revision) {
        (self.told, self.at) = (revision, Instant::now());
    }
}
