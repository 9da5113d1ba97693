//! Watching the embedded engine: a watcher is a position in the shared history, not a buffer of its own.
//!
//! A slow watcher therefore costs nothing; when the history is trimmed past its position it ends with
//! [`Error::Compacted`]. A watch ends without an error when the store is closed.

use std::{sync::Arc, vec};

use futures::{StreamExt, stream};
use tokio::sync::watch::Receiver;

use super::Shared;
use crate::{Error, Event, Revision, Watch};

/// How many changes are looked at while the lock is held.
const SCAN: usize = 1024;
/// How many events a watcher takes at once.
const BATCH: usize = 64;

pub(super) fn watch(
    shared: Arc<Shared>,
    newest: Receiver<Revision>,
    prefix: &str,
    after: Revision,
) -> Result<Watch, Error> {
    shared.read().check(after)?;
    let watcher = Watcher { shared, newest, prefix: prefix.into(), cursor: after, taken: Vec::new().into_iter() };
    let events = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await? {
            Ok(event) => Some((Ok(event), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(events.boxed())
}

struct Watcher {
    shared: Arc<Shared>,
    newest: Receiver<Revision>,
    prefix: Box<str>,
    /// Every event up to here is delivered or in `taken`.
    cursor: Revision,
    taken: vec::IntoIter<Arc<Event>>,
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.taken.next() {
                return Some(Ok(Event::clone(&event)));
            }
            // Marked as seen before looking: what is published after the look then wakes this watcher.
            self.newest.borrow_and_update();
            match self.take() {
                Ok(Look::Taken) => {}
                Ok(Look::More) => tokio::task::yield_now().await,
                Ok(Look::CaughtUp) => self.newest.changed().await.ok()?,
                Err(error) => return Some(Err(error)),
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
