//! The body of a watch: batches ready events and encodes them only when the client reads.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
};

use bytes::{Bytes, BytesMut};
use store::{CacheWatcher, CachedChange, EncodedBatch, Revision, Snapshot};
use tokio::time::{Duration, Instant, Sleep, sleep_until};

use super::{WatchStart, event_encoder::EventEncoder};

/// Mean interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// A last bookmark is sent this long before the timeout.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// After a chunk, further changes are batched, because many small writes cost more than the changes. The delay grows
/// with the number of watchers; few watchers have none. All watchers wake at the same times, so that they share the
/// batch that the first of them encodes.
const BATCH_DELAY_PER_WATCHER: Duration = Duration::from_micros(50);
const MAX_BATCH_DELAY: Duration = Duration::from_millis(10);
/// Maximum number of changes per batch.
const MAX_CHANGES: usize = 64;
/// Number of existing objects per conversion request.
const CONVERSION_BATCH: usize = 100;
/// Approximate maximum chunk size.
const CHUNK_SIZE: usize = 64 << 10;

/// The remaining events of a watch.
pub(super) struct EventStream {
    view: EventEncoder,
    state: StreamState,
    /// The timer of the next bookmark, if the client requested bookmarks.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// The last revision that the client has observed.
    sent_revision: Revision,
    /// Time of the last chunk.
    last_sent: Option<Instant>,
    ends: Instant,
}

enum StreamState {
    /// Sends the initial objects after a key.
    Existing {
        snapshot: Snapshot,
        after: Option<String>,
        watcher: CacheWatcher,
    },
    Changes(CacheWatcher),
    Failed(store::StoreError),
    Ended,
}

impl EventStream {
    pub fn new(view: EventEncoder, start: WatchStart, bookmarks: bool, ends: Instant) -> Self {
        let (state, told) = match start {
            WatchStart::Existing(snapshot, watcher) => (StreamState::Existing { snapshot, after: None, watcher }, 0),
            WatchStart::Changes(watcher) => {
                let told = watcher.cursor();
                (StreamState::Changes(watcher), told)
            }
            WatchStart::Failed(error) => (StreamState::Failed(error), 0),
        };
        let bookmark = bookmarks.then(|| Box::pin(sleep_until(next_bookmark_time(ends))));
        Self { view, state, bookmark, sent_revision: told, last_sent: None, ends }
    }

    /// The next chunk of the body; `None` at its end.
    pub async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let piece = match std::mem::replace(&mut self.state, StreamState::Ended) {
                StreamState::Ended => return None,
                StreamState::Failed(error) => return Some(self.view.encode_error(&error)),
                StreamState::Existing { snapshot, after, watcher } => {
                    match self.convert_existing(&snapshot, after.as_deref()).await {
                        Ok(()) => self.take_existing(snapshot, after, watcher),
                        Err(error) => Err(error),
                    }
                }
                StreamState::Changes(watcher) => self.take_changes(watcher).await,
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some(piece),
                Err(error) => self.state = StreamState::Failed(error),
            }
        }
    }

    /// Converts the next existing objects if a conversion webhook is used.
    async fn convert_existing(&mut self, snapshot: &Snapshot, after: Option<&str>) -> Result<(), store::StoreError> {
        match self.view.needs_conversion() {
            true => {
                self.view.convert_items(snapshot.items_after(after).take(CONVERSION_BATCH).cloned().collect()).await
            }
            false => Ok(()),
        }
    }

    /// A chunk of existing objects, or the bookmark after them.
    fn take_existing(
        &mut self,
        snapshot: Snapshot,
        after: Option<String>,
        watcher: CacheWatcher,
    ) -> Result<Bytes, store::StoreError> {
        let mut piece = EventChunk::default();
        let mut last = None;
        let most = if self.view.needs_conversion() { CONVERSION_BATCH } else { usize::MAX };
        for (at, item) in snapshot.items_after(after.as_deref()).enumerate() {
            if piece.is_full() || at == most {
                break;
            }
            last = Some(item.record.key.to_string());
            if self.view.is_selected(item) {
                piece.add_event(self.view.encode_existing(item)?);
            }
        }
        if last.is_some() {
            self.state = StreamState::Existing { snapshot, after: last, watcher };
            return Ok(piece.into_bytes());
        }
        self.state = StreamState::Changes(watcher);
        if self.bookmark.is_none() {
            return Ok(Bytes::new());
        }
        self.sent_revision = snapshot.revision;
        Ok(self.view.bookmark(snapshot.revision, true))
    }

    /// Waits for changes and encodes them; a bookmark if none arrives in time.
    async fn take_changes(&mut self, mut watcher: CacheWatcher) -> Result<Bytes, store::StoreError> {
        loop {
            self.wait_for_batch(&watcher).await;
            let written = if self.view.needs_conversion() {
                let changes = watcher.take_changes(MAX_CHANGES)?;
                let items = changes.iter().flat_map(|change| change.item.iter().chain(&change.previous));
                let items = items.cloned().collect();
                self.view.convert_items(items).await?;
                encode_changes(&mut self.view, &changes)?
            } else {
                self.take_batch(&mut watcher)?
            };
            if !written.bytes.is_empty() {
                self.sent_revision = written.last_revision.unwrap_or(self.sent_revision);
                self.last_sent = (written.changes < MAX_CHANGES).then(Instant::now);
                self.state = StreamState::Changes(watcher);
                return Ok(written.bytes);
            }
            if written.changes > 0 {
                // A watch that selects few changes must not starve other tasks.
                tokio::task::yield_now().await;
                continue;
            }
            if self.wait_for_change(&mut watcher).await
                && let Some(bookmark) = self.next_bookmark_event(&mut watcher)?
            {
                self.state = StreamState::Changes(watcher);
                return Ok(bookmark);
            }
        }
    }

    /// Waits for the batch delay, unless nothing was sent recently or the next batch is already encoded.
    async fn wait_for_batch(&self, watcher: &CacheWatcher) {
        let share = batch_delay(watcher.watcher_count());
        let now = Instant::now();
        let lately = self.last_sent.is_some_and(|sent| now < sent + share);
        if lately && !self.view.batch_key().is_some_and(|name| watcher.is_encoded(name)) {
            sleep_until(next_batch_time(now, share)).await;
        }
    }

    /// Takes and encodes the next changes, shared with equal watches.
    fn take_batch(&mut self, watcher: &mut CacheWatcher) -> Result<EncodedBatch, store::StoreError> {
        let (view, alone) = (&mut self.view, batch_delay(watcher.watcher_count()).is_zero());
        match view.batch_key().filter(|_| !alone).cloned() {
            Some(name) => watcher.take_encoded(MAX_CHANGES, &name, |changes| encode_changes(view, changes)),
            None => encode_changes(view, &watcher.take_changes(MAX_CHANGES)?),
        }
    }

    /// Waits for a change; `true` if a bookmark is due instead.
    async fn wait_for_change(&mut self, watcher: &mut CacheWatcher) -> bool {
        let Some(bookmark) = &mut self.bookmark else {
            watcher.wait_for_change().await;
            return false;
        };
        tokio::select! {
            biased;
            () = watcher.wait_for_change() => false,
            () = bookmark.as_mut() => {
                bookmark.as_mut().reset(next_bookmark_time(self.ends));
                true
            }
        }
    }

    /// A bookmark, if the revision advanced without events. Changes that arrive meanwhile are left for the next batch.
    fn next_bookmark_event(&mut self, watcher: &mut CacheWatcher) -> Result<Option<Bytes>, store::StoreError> {
        let reached = watcher.advance_cursor()?;
        if reached <= self.sent_revision {
            return Ok(None);
        }
        self.sent_revision = reached;
        Ok(Some(self.view.bookmark(reached, false)))
    }
}

/// Encodes changes as one batch.
fn encode_changes(view: &mut EventEncoder, changes: &[Arc<CachedChange>]) -> Result<EncodedBatch, store::StoreError> {
    let (mut piece, mut shown) = (EventChunk::default(), None);
    for change in changes {
        if let Some(line) = view.encode_change(change)? {
            shown = Some(change.revision);
            piece.add_event(line);
        }
    }
    Ok(EncodedBatch { bytes: piece.into_bytes(), last_revision: shown, changes: changes.len() })
}

/// The next common wake-up time of watchers with this delay.
fn next_batch_time(now: Instant, share: Duration) -> Instant {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let into = now.saturating_duration_since(*BEGAN).as_nanos() % share.as_nanos().max(1);
    now + share.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0)))
}

/// The batch delay for a number of watchers; zero below the timer resolution of a millisecond.
fn batch_delay(watchers: usize) -> Duration {
    let share = BATCH_DELAY_PER_WATCHER * u32::try_from(watchers).unwrap_or(u32::MAX).min(1_000);
    if share < Duration::from_millis(1) { Duration::ZERO } else { share.min(MAX_BATCH_DELAY) }
}

/// The time of the next bookmark of a watch that ends at `ends`.
fn next_bookmark_time(ends: Instant) -> Instant {
    let now = Instant::now();
    let regular = now + BOOKMARK_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0);
    let last = ends.checked_sub(LAST_BOOKMARK_LEAD).filter(|last| *last > now);
    last.map_or(regular, |last| last.min(regular))
}

/// A chunk of the body: one event as it is, or several joined.
#[derive(Default)]
struct EventChunk {
    first: Bytes,
    joined: BytesMut,
}

impl EventChunk {
    fn add_event(&mut self, line: Bytes) {
        if self.is_empty() {
            self.first = line;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.first);
        }
        self.joined.extend_from_slice(&line);
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn is_full(&self) -> bool {
        self.first.len().max(self.joined.len()) >= CHUNK_SIZE
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}
