//! Watching the embedded engine: a watcher is a position in the shared history, not a buffer of its own.
//!
//! A slow watcher therefore costs nothing; when the history is trimmed past its position it ends with
//! [`Error::Compacted`]. A watch ends without an error when the store is closed.

use std::{sync::Arc, time::Duration, vec};

use futures::{StreamExt, stream};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, timeout_at},
};

use super::Shared;
use crate::{Error, Event, Follow, Notice, Notices, Revision};

/// How many changes are looked at while the lock is held.
const SCAN: usize = 1024;
/// How many events a watcher takes at once.
const BATCH: usize = 64;

pub(super) fn follow(shared: Arc<Shared>, newest: Receiver<Revision>, follow: Follow) -> Result<Notices, Error> {
    shared.read().check(follow.after)?;
    let Follow { prefix, after, progress, .. } = follow;
    let told = Told { revision: after, at: Instant::now(), every: progress };
    let watcher = Watcher { shared, newest, prefix: prefix.into(), cursor: after, taken: Vec::new().into_iter(), told };
    let notices = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await? {
            Ok(notice) => Some((Ok(notice), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(notices.boxed())
}

struct Watcher {
    shared: Arc<Shared>,
    newest: Receiver<Revision>,
    prefix: Box<str>,
    /// Every event up to here is delivered or in `taken`.
    cursor: Revision,
    taken: vec::IntoIter<Arc<Event>>,
    told: Told,
}

/// What the consumer knows of the watcher's position.
struct Told {
    revision: Revision,
    at: Instant,
    every: Option<Duration>,
}

impl Told {
    fn note(&mut self, revision: Revision) {
        self.revision = revision;
        if self.every.is_some() {
            self.at = Instant::now();
        }
    }

    /// When the consumer must hear that everything up to `cursor` is delivered.
    fn due(&self, cursor: Revision) -> Option<Instant> {
        let every = self.every.filter(|_| cursor > self.revision)?;
        Some(self.at + every)
    }
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<Notice, Error>> {
        loop {
            if let Some(event) = self.taken.next() {
                self.told.note(event.revision);
                return Some(Ok(Notice::Event(Event::clone(&event))));
            }
            // Marked as seen before looking: what is published after the look then wakes this watcher.
            self.newest.borrow_and_update();
            match self.take() {
                Ok(Look::Taken) => {}
                Ok(Look::More) => tokio::task::yield_now().await,
                Ok(Look::CaughtUp) => {
                    if let Some(progress) = self.idle().await? {
                        return Some(Ok(progress));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Waits for a change, or until the consumer must hear of progress. `None` when the store is closed.
    async fn idle(&mut self) -> Option<Option<Notice>> {
        let changed = self.newest.changed();
        let Some(due) = self.told.due(self.cursor) else { return changed.await.ok().map(|()| None) };
        match timeout_at(due, changed).await {
            // Under a stream of changes of other keys the time may have come too.
            Ok(closed) if Instant::now() < due => closed.ok().map(|()| None),
            Ok(Err(_)) => None,
            Ok(Ok(())) | Err(_) => {
                self.told.note(self.cursor);
                self.newest.mark_changed();
                Some(Some(Notice::Progress(self.cursor)))
            }
        }
    }

    fn take(&mut self) -> Result<Look, Error> {
        let scan = self.shared.read().scan(self.cursor, &self.prefix, SCAN, BATCH)?;
        self.cursor = scan.through;
        let look = match (scan.events.is_empty(), scan.more) {
            (false, _) => Look::Taken,
            (true, true) => Look::More,
            (true, false) => Look::CaughtUp,
        };
        self.taken = scan.events.into_iter();
        Ok(look)
    }
}

/// What a look at the history gave.
enum Look {
    Taken,
    /// Nothing for this watcher yet, but not everything was looked at.
    More,
    CaughtUp,
}
