//! Watches the embedded engine: a watcher is a position in the shared history, without a buffer of its own.
//!
//! A slow watcher therefore costs nothing; when the history is trimmed past its position it ends with
//! [`StoreError::Compacted`]. A watch ends without an error when the store is closed.

use std::{sync::Arc, time::Duration, vec};

use futures::{StreamExt, stream};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, timeout_at},
};

use super::SharedState;
use crate::{Revision, StoreError, StoreEvent, WatchItem, WatchItems, WatchOptions};

/// Changes scanned under one lock.
const SCAN: usize = 1024;
/// Events taken at once.
const BATCH: usize = 64;

pub(super) fn watch_items(
    shared: Arc<SharedState>,
    newest: Receiver<Revision>,
    follow: WatchOptions,
) -> Result<WatchItems, StoreError> {
    shared.read().check_revision(follow.after)?;
    let WatchOptions { prefix, after, progress_interval: progress, .. } = follow;
    let told = ReportedPosition { revision: after, at: Instant::now(), every: progress };
    let watcher = HistoryWatcher {
        shared,
        newest,
        prefix: prefix.into(),
        cursor: after,
        taken: Vec::new().into_iter(),
        reported: told,
    };
    let notices = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next_item().await? {
            Ok(notice) => Some((Ok(notice), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(notices.boxed())
}

struct HistoryWatcher {
    shared: Arc<SharedState>,
    newest: Receiver<Revision>,
    prefix: Box<str>,
    /// Every event up to here is delivered or in `taken`.
    cursor: Revision,
    taken: vec::IntoIter<Arc<StoreEvent>>,
    reported: ReportedPosition,
}

/// The last position that the consumer received.
struct ReportedPosition {
    revision: Revision,
    at: Instant,
    every: Option<Duration>,
}

impl ReportedPosition {
    fn record(&mut self, revision: Revision) {
        self.revision = revision;
        if self.every.is_some() {
            self.at = Instant::now();
        }
    }

    /// The time of the next progress notification, if `cursor` is ahead of the reported position.
    fn progress_due(&self, cursor: Revision) -> Option<Instant> {
        let every = self.every.filter(|_| cursor > self.revision)?;
        Some(self.at + every)
    }
}

impl HistoryWatcher {
    async fn next_item(&mut self) -> Option<Result<WatchItem, StoreError>> {
        loop {
            if let Some(event) = self.taken.next() {
                self.reported.record(event.revision);
                return Some(Ok(WatchItem::Event(StoreEvent::clone(&event))));
            }
            // Marked as seen before looking: what is published after the look then wakes this watcher.
            self.newest.borrow_and_update();
            match self.take_events() {
                Ok(ScanOutcome::Taken) => {}
                Ok(ScanOutcome::More) => tokio::task::yield_now().await,
                Ok(ScanOutcome::CaughtUp) => {
                    if let Some(progress) = self.wait_for_change().await? {
                        return Some(Ok(progress));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Waits for a change or the next progress notification. `None` when the store is closed.
    async fn wait_for_change(&mut self) -> Option<Option<WatchItem>> {
        let changed = self.newest.changed();
        let Some(due) = self.reported.progress_due(self.cursor) else { return changed.await.ok().map(|()| None) };
        match timeout_at(due, changed).await {
            // Under a stream of changes of other keys the time may have come too.
            Ok(closed) if Instant::now() < due => closed.ok().map(|()| None),
            Ok(Err(_)) => None,
            Ok(Ok(())) | Err(_) => {
                self.reported.record(self.cursor);
                self.newest.mark_changed();
                Some(Some(WatchItem::Progress(self.cursor)))
            }
        }
    }

    fn take_events(&mut self) -> Result<ScanOutcome, StoreError> {
        let scan = self.shared.read().scan_history(self.cursor, &self.prefix, SCAN, BATCH)?;
        self.cursor = scan.through;
        let look = match (scan.events.is_empty(), scan.more) {
            (false, _) => ScanOutcome::Taken,
            (true, true) => ScanOutcome::More,
            (true, false) => ScanOutcome::CaughtUp,
        };
        self.taken = scan.events.into_iter();
        Ok(look)
    }
}

/// The outcome of a history scan.
enum ScanOutcome {
    Taken,
    /// No matching event yet, and more history to scan.
    More,
    CaughtUp,
}
