//! The body of a watch: what is ready goes out together, and nothing is made before the client takes it.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
};

use bytes::{Bytes, BytesMut};
use store::{CacheWatcher, CachedChange, EncodedBatch, Revision, Snapshot};
use tokio::time::{Duration, Instant, Sleep, sleep_until};

use super::{Start, view::View};

/// How often a quiet watch tells how far it is.
const BOOKMARK: Duration = Duration::from_secs(60);
/// A watch that is about to end tells how far it is.
const BEFORE_END: Duration = Duration::from_secs(2);
/// After something was sent, what follows is gathered: many small writes cost more than the changes. The more watchers
/// there are to write to, the longer; a few hear of everything at once. All wait for the same moments, so that most share
/// what the first of them puts together.
const GATHERED_PER_WATCHER: Duration = Duration::from_micros(50);
const GATHERED_AT_MOST: Duration = Duration::from_millis(10);
/// How many changes are taken at once.
const CHANGES: usize = 64;
/// How many existing objects are converted at once.
const CONVERTED: usize = 100;
/// A piece of the body is not much larger than this.
const PIECE: usize = 64 << 10;

/// What a watch still has to say.
pub(super) struct Lines {
    view: View,
    state: State,
    /// When to tell how far it is, if the client wants to hear it.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// The client knows that everything up to here was sent.
    told: Revision,
    /// When changes were last sent.
    sent: Option<Instant>,
    ends: Instant,
}

enum State {
    /// What existed before, after a key.
    Existing {
        snapshot: Snapshot,
        after: Option<String>,
        watcher: CacheWatcher,
    },
    Changes(CacheWatcher),
    Failed(store::StoreError),
    Over,
}

impl Lines {
    pub fn new(view: View, start: Start, bookmarks: bool, ends: Instant) -> Self {
        let (state, told) = match start {
            Start::Existing(snapshot, watcher) => (State::Existing { snapshot, after: None, watcher }, 0),
            Start::Changes(watcher) => {
                let told = watcher.cursor();
                (State::Changes(watcher), told)
            }
            Start::Never(error) => (State::Failed(error), 0),
        };
        let bookmark = bookmarks.then(|| Box::pin(sleep_until(next_bookmark(ends))));
        Self { view, state, bookmark, told, sent: None, ends }
    }

    /// The next piece of the body; `None` at its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let piece = match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return None,
                State::Failed(error) => return Some(self.view.error(&error)),
                State::Existing { snapshot, after, watcher } => match self.prepare(&snapshot, after.as_deref()).await {
                    Ok(()) => self.existing(snapshot, after, watcher),
                    Err(error) => Err(error),
                },
                State::Changes(watcher) => self.changes(watcher).await,
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some(piece),
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    /// Has what comes next of what exists converted, where somebody else must.
    async fn prepare(&mut self, snapshot: &Snapshot, after: Option<&str>) -> Result<(), store::StoreError> {
        match self.view.converts() {
            true => self.view.prepare(snapshot.items_after(after).take(CONVERTED).cloned().collect()).await,
            false => Ok(()),
        }
    }

    /// A piece of what exists, or the bookmark after it.
    fn existing(
        &mut self,
        snapshot: Snapshot,
        after: Option<String>,
        watcher: CacheWatcher,
    ) -> Result<Bytes, store::StoreError> {
        let mut piece = Piece::default();
        let mut last = None;
        let most = if self.view.converts() { CONVERTED } else { usize::MAX };
        for (at, item) in snapshot.items_after(after.as_deref()).enumerate() {
            if piece.is_full() || at == most {
                break;
            }
            last = Some(item.record.key.to_string());
            if self.view.selects(item) {
                piece.add(self.view.existing(item)?);
            }
        }
        if last.is_some() {
            self.state = State::Existing { snapshot, after: last, watcher };
            return Ok(piece.done());
        }
        self.state = State::Changes(watcher);
        if self.bookmark.is_none() {
            return Ok(Bytes::new());
        }
        self.told = snapshot.revision;
        Ok(self.view.bookmark(snapshot.revision, true))
    }

    /// The changes that are ready, after waiting for one, or a bookmark if none comes in time.
    async fn changes(&mut self, mut watcher: CacheWatcher) -> Result<Bytes, store::StoreError> {
        loop {
            self.gather(&watcher).await;
            let written = if self.view.converts() {
                let changes = watcher.take_changes(CHANGES)?;
                let items = changes.iter().flat_map(|change| change.item.iter().chain(&change.previous));
                let items = items.cloned().collect();
                self.view.prepare(items).await?;
                written(&mut self.view, &changes)?
            } else {
                self.take(&mut watcher)?
            };
            if !written.bytes.is_empty() {
                self.told = written.last_revision.unwrap_or(self.told);
                self.sent = (written.changes < CHANGES).then(Instant::now);
                self.state = State::Changes(watcher);
                return Ok(written.bytes);
            }
            if written.changes > 0 {
                // Those who select little must not keep others from their turn.
                tokio::task::yield_now().await;
                continue;
            }
            if self.waited(&mut watcher).await
                && let Some(bookmark) = self.bookmark(&mut watcher)?
            {
                self.state = State::Changes(watcher);
                return Ok(bookmark);
            }
        }
    }

    /// Lets changes gather, unless nothing was sent lately or what comes next is there already.
    async fn gather(&self, watcher: &CacheWatcher) {
        let share = gathered(watcher.watcher_count());
        let now = Instant::now();
        let lately = self.sent.is_some_and(|sent| now < sent + share);
        if lately && !self.view.name().is_some_and(|name| watcher.is_encoded(name)) {
            sleep_until(moment(now, share)).await;
        }
    }

    /// The next changes, as they are sent.
    fn take(&mut self, watcher: &mut CacheWatcher) -> Result<EncodedBatch, store::StoreError> {
        let (view, alone) = (&mut self.view, gathered(watcher.watcher_count()).is_zero());
        match view.name().filter(|_| !alone).cloned() {
            Some(name) => watcher.take_encoded(CHANGES, &name, |changes| written(view, changes)),
            None => written(view, &watcher.take_changes(CHANGES)?),
        }
    }

    /// Waits for a change; `true` if it is time to tell how far the watch is instead.
    async fn waited(&mut self, watcher: &mut CacheWatcher) -> bool {
        let Some(bookmark) = &mut self.bookmark else {
            watcher.wait_for_change().await;
            return false;
        };
        tokio::select! {
            biased;
            () = watcher.wait_for_change() => false,
            () = bookmark.as_mut() => {
                bookmark.as_mut().reset(next_bookmark(self.ends));
                true
            }
        }
    }

    /// How far the watch is, if the client does not know. Changes that came meanwhile are left for the next look.
    fn bookmark(&mut self, watcher: &mut CacheWatcher) -> Result<Option<Bytes>, store::StoreError> {
        let reached = watcher.advance_cursor()?;
        if reached <= self.told {
            return Ok(None);
        }
        self.told = reached;
        Ok(Some(self.view.bookmark(reached, false)))
    }
}

/// Changes as a view shows them.
fn written(view: &mut View, changes: &[Arc<CachedChange>]) -> Result<EncodedBatch, store::StoreError> {
    let (mut piece, mut shown) = (Piece::default(), None);
    for change in changes {
        if let Some(line) = view.change(change)? {
            shown = Some(change.revision);
            piece.add(line);
        }
    }
    Ok(EncodedBatch { bytes: piece.done(), last_revision: shown, changes: changes.len() })
}

/// The next of the moments at which those who gather for so long look again.
fn moment(now: Instant, share: Duration) -> Instant {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let into = now.saturating_duration_since(*BEGAN).as_nanos() % share.as_nanos().max(1);
    now + share.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0)))
}

/// How long changes are gathered for so many watchers. Clocks do not wake for less than a millisecond.
fn gathered(watchers: usize) -> Duration {
    let share = GATHERED_PER_WATCHER * u32::try_from(watchers).unwrap_or(u32::MAX).min(1_000);
    if share < Duration::from_millis(1) { Duration::ZERO } else { share.min(GATHERED_AT_MOST) }
}

/// When a watch that ends then tells how far it is.
fn next_bookmark(ends: Instant) -> Instant {
    let now = Instant::now();
    let regular = now + BOOKMARK.mul_f64(0.75 + fastrand::f64() / 2.0);
    let last = ends.checked_sub(BEFORE_END).filter(|last| *last > now);
    last.map_or(regular, |last| last.min(regular))
}

/// A part of the body: one line as it is, or several copied together.
#[derive(Default)]
struct Piece {
    first: Bytes,
    joined: BytesMut,
}

impl Piece {
    fn add(&mut self, line: Bytes) {
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
        self.first.len().max(self.joined.len()) >= PIECE
    }

    fn done(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}
