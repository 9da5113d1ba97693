//! The body of a watch: what is ready goes out together, and nothing is made before the client takes it.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
};

use bytes::{Bytes, BytesMut};
use store::{CacheWatcher, CachedChange, EncodedBatch, Revision, Snapshot};
use tokio::time::{Duration, Instant, Sleep, sleep_until};

use super::{WatchStart, event_encoder::EventEncoder};

/// How often a quiet watch tells how far it is.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// A watch that is about to end tells how far it is.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// After something was sent, what follows is gathered: many small writes cost more than the changes. The more watchers
/// there are to write to, the longer; a few hear of everything at once. All wait for the same moments, so that most share
/// what the first of them puts together.
const BATCH_DELAY_PER_WATCHER: Duration = Duration::from_micros(50);
const MAX_BATCH_DELAY: Duration = Duration::from_millis(10);
/// How many changes are taken at once.
const MAX_CHANGES: usize = 64;
/// How many existing objects are converted at once.
const CONVERSION_BATCH: usize = 100;
/// A piece of the body is not much larger than this.
const CHUNK_SIZE: usize = 64 << 10;

/// What a watch still has to say.
pub(super) struct EventStream {
    view: EventEncoder,
    state: StreamState,
    /// When to tell how far it is, if the client wants to hear it.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// The client knows that everything up to here was sent.
    sent_revision: Revision,
    /// When changes were last sent.
    last_sent: Option<Instant>,
    ends: Instant,
}

enum StreamState {
    /// What existed before, after a key.
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

    /// The next piece of the body; `None` at its end.
    pub async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let piece = match std::mem::replace(&mut self.state, StreamState::Ended) {
                StreamState::Ended => return None,
                StreamState::Failed(error) => return Some(self.view.encode_error(&error)),
                StreamState::Existing { snapshot, after, watcher } => match self.convert_existing(&snapshot, after.as_deref()).await {
                    Ok(()) => self.take_existing(snapshot, after, watcher),
                    Err(error) => Err(error),
                },
                StreamState::Changes(watcher) => self.take_changes(watcher).await,
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some(piece),
                Err(error) => self.state = StreamState::Failed(error),
            }
        }
    }

    /// Has what comes next of what exists converted, where somebody else must.
    async fn convert_existing(&mut self, snapshot: &Snapshot, after: Option<&str>) -> Result<(), store::StoreError> {
        match self.view.needs_conversion() {
            true => self.view.convert_items(snapshot.items_after(after).take(CONVERSION_BATCH).cloned().collect()).await,
            false => Ok(()),
        }
    }

    /// A piece of what exists, or the bookmark after it.
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

    /// The changes that are ready, after waiting for one, or a bookmark if none comes in time.
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
                // Those who select little must not keep others from their turn.
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

    /// Lets changes gather, unless nothing was sent lately or what comes next is there already.
    async fn wait_for_batch(&self, watcher: &CacheWatcher) {
        let share = batch_delay(watcher.watcher_count());
        let now = Instant::now();
        let lately = self.last_sent.is_some_and(|sent| now < sent + share);
        if lately && !self.view.batch_key().is_some_and(|name| watcher.is_encoded(name)) {
            sleep_until(next_batch_time(now, share)).await;
        }
    }

    /// The next changes, as they are sent.
    fn take_batch(&mut self, watcher: &mut CacheWatcher) -> Result<EncodedBatch, store::StoreError> {
        let (view, alone) = (&mut self.view, batch_delay(watcher.watcher_count()).is_zero());
        match view.batch_key().filter(|_| !alone).cloned() {
            Some(name) => watcher.take_encoded(MAX_CHANGES, &name, |changes| encode_changes(view, changes)),
            None => encode_changes(view, &watcher.take_changes(MAX_CHANGES)?),
        }
    }

    /// Waits for a change; `true` if it is time to tell how far the watch is instead.
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

    /// How far the watch is, if the client does not know. Changes that came meanwhile are left for the next look.
    fn next_bookmark_event(&mut self, watcher: &mut CacheWatcher) -> Result<Option<Bytes>, store::StoreError> {
        let reached = watcher.advance_cursor()?;
        if reached <= self.sent_revision {
            return Ok(None);
        }
        self.sent_revision = reached;
        Ok(Some(self.view.bookmark(reached, false)))
    }
}

/// Changes as a view shows them.
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

/// The next of the moments at which those who gather for so long look again.
fn next_batch_time(now: Instant, share: Duration) -> Instant {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let into = now.saturating_duration_since(*BEGAN).as_nanos() % share.as_nanos().max(1);
    now + share.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0)))
}

/// How long changes are gathered for so many watchers. Clocks do not wake for less than a millisecond.
fn batch_delay(watchers: usize) -> Duration {
    let share = BATCH_DELAY_PER_WATCHER * u32::try_from(watchers).unwrap_or(u32::MAX).min(1_000);
    if share < Duration::from_millis(1) { Duration::ZERO } else { share.min(MAX_BATCH_DELAY) }
}

/// When a watch that ends then tells how far it is.
fn next_bookmark_time(ends: Instant) -> Instant {
    let now = Instant::now();
    let regular = now + BOOKMARK_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0);
    let last = ends.checked_sub(LAST_BOOKMARK_LEAD).filter(|last| *last > now);
    last.map_or(regular, |last| last.min(regular))
}

/// A part of the body: one line as it is, or several copied together.
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
