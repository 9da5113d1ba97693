//! Watches etcd: one stream per watcher, resumed where it broke, with progress notifications.
//!
//! The stream begins one revision early. etcd calls a watch compacted only when it begins before the compacted
//! revision, and for ours that is one too late: what was deleted at that revision may be gone.

use std::{collections::VecDeque, future, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    EtcdStore, after_prefix,
    client::WatchStream,
    engine_error, header_revision,
    messages::{KeyValue, WatchCreateRequest, WatchResponse},
    retry::{CallKind, retry_call},
};
use crate::{Revision, StoreError, StoreEvent, WatchItem, WatchItems, WatchOptions};

/// Time after which a watcher that cannot reconnect ends with an error.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for etcd to report the oldest revision.
const OLDEST_REVISION_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

pub(super) async fn watch_items(etcd: EtcdStore, follow: WatchOptions) -> Result<WatchItems, StoreError> {
    // A read as of that revision fails if it is compacted.
    etcd.read_range(b"revision", b"", 1, follow.after.max(1)).await?;
    let prefix = etcd.layout.to_etcd(&follow.prefix);
    let asks_progress = etcd.supports_progress_requests;
    let mut watcher = EtcdWatcher {
        etcd,
        prefix,
        cursor: follow.after,
        waiting: VecDeque::new(),
        stream: None,
        progress_interval: follow.progress_interval,
        progress_request: follow.progress_request.filter(|_| asks_progress),
        reported: follow.after,
        reported_at: Instant::now(),
    };
    watcher.connect().await?;
    let notices = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next_item().await {
            Ok(notice) => Some((Ok(notice), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(notices.boxed())
}

/// Finds the oldest readable revision, by watching from a compacted one. `None`: etcd did not report it in time.
pub(super) async fn find_oldest_revision(etcd: &EtcdStore, compacted: Revision) -> Option<Revision> {
    let start_revision = compacted.max(1) as i64;
    let create = WatchCreateRequest { key: b"oldest".into(), start_revision, ..WatchCreateRequest::default() };
    let asked = async {
        let mut stream = etcd.client.watch(create).await.ok()?;
        while let Ok(Some(response)) = stream.message().await {
            if response.compact_revision > 0 {
                return Some(response.compact_revision as Revision);
            }
        }
        None
    };
    timeout(OLDEST_REVISION_TIMEOUT, asked).await.ok()?
}

/// Waits until a progress request is due or requested.
async fn wait_for_progress_request(due: Option<Duration>, nudge: Option<&Notify>) {
    let due = async {
        match due {
            Some(due) => sleep(due).await,
            None => future::pending().await,
        }
    };
    let nudged = async {
        match nudge {
            Some(nudge) => nudge.notified().await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        () = due => {}
        () = nudged => {}
    }
}

struct EtcdWatcher {
    etcd: EtcdStore,
    prefix: String,
    /// Every event up to here is delivered or in `waiting`.
    cursor: Revision,
    waiting: VecDeque<StoreEvent>,
    stream: Option<WatchStream>,
    progress_interval: Option<Duration>,
    progress_request: Option<Arc<Notify>>,
    /// The last revision that the consumer received.
    reported: Revision,
    reported_at: Instant,
}

impl EtcdWatcher {
    async fn next_item(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.mark_reported(event.revision);
                return Ok(WatchItem::Event(event));
            }
            let Some(response) = self.next_response().await? else { continue };
            if let Some(progress) = self.take_events(response)? {
                self.mark_reported(progress);
                return Ok(WatchItem::Progress(progress));
            }
        }
    }

    fn mark_reported(&mut self, revision: Revision) {
        self.reported = revision;
        self.reported_at = Instant::now();
    }

    /// Waits for the next response; `None` after a progress request or a reconnect.
    async fn next_response(&mut self) -> Result<Option<WatchResponse>, StoreError> {
        let Some(stream) = &mut self.stream else {
            self.reconnect().await?;
            return Ok(None);
        };
        let every = self.progress_interval.filter(|_| self.etcd.supports_progress_requests);
        let due = every.map(|every| every.saturating_sub(self.reported_at.elapsed()).max(MIN_BACKOFF));
        let received = tokio::select! {
            received = stream.message() => received,
            () = wait_for_progress_request(due, self.progress_request.as_deref()) => {
                self.reported_at = Instant::now();
                // The stream has ended: reconnect.
                if !stream.request_progress().await {
                    self.stream = None;
                }
                return Ok(None);
            }
        };
        match received {
            Ok(Some(response)) => Ok(Some(response)),
            Ok(None) | Err(_) => {
                self.stream = None;
                Ok(None)
            }
        }
    }

    /// Takes the events of a response; returns the revision if it is a progress notification.
    fn take_events(&mut self, response: WatchResponse) -> Result<Option<Revision>, StoreError> {
        if response.compact_revision > 0 {
            let oldest = response.compact_revision as Revision;
            return Err(StoreError::Compacted { requested: self.cursor, oldest });
        }
        if response.canceled {
            return Err(StoreError::Engine(format!("etcd ended a watch: {}", response.cancel_reason).into()));
        }
        let progress = header_revision(response.header)?;
        let is_notification = response.events.is_empty() && !response.created;
        for event in response.events {
            let Some(kv) = event.kv else { continue };
            if kv.mod_revision as Revision > self.cursor {
                self.waiting.extend(self.to_event(kv, event.prev_kv)?);
            }
        }
        if let Some(last) = self.waiting.back() {
            self.cursor = last.revision;
            return Ok(None);
        }
        let news = is_notification && progress > self.reported && self.progress_interval.is_some();
        if news {
            self.cursor = self.cursor.max(progress);
        }
        Ok(news.then_some(progress))
    }

    /// `None` if the key is outside of the layout.
    fn to_event(&self, kv: KeyValue, previous: Option<KeyValue>) -> Result<Option<StoreEvent>, StoreError> {
        let key = str::from_utf8(&kv.key).ok().and_then(|key| self.etcd.layout.to_ours(key));
        let Some(key) = key else { return Ok(None) };
        let revision = kv.mod_revision as Revision;
        // A deletion has no creation.
        let deleted = kv.create_revision == 0;
        let created = kv.create_revision == kv.mod_revision;
        let previous = previous.filter(|previous| previous.mod_revision > 0).and_then(|kv| self.etcd.to_record(kv));
        if previous.is_none() && !created {
            // It was compacted before the event was sent.
            return Err(StoreError::Compacted { requested: self.cursor, oldest: revision });
        }
        let value = (!deleted).then(|| kv.value.into());
        Ok(Some(StoreEvent { revision, key: key.into(), value, previous }))
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        let create = WatchCreateRequest {
            key: self.prefix.clone().into_bytes(),
            range_end: after_prefix(self.prefix.as_bytes()),
            start_revision: self.cursor.max(1) as i64,
            progress_notify: true,
            prev_kv: true,
        };
        let watch = || self.etcd.client.watch(create.clone());
        let mut stream = retry_call(CallKind::Read, watch).await.map_err(engine_error)?;
        // The first response only confirms the watch.
        stream.message().await.map_err(engine_error)?;
        self.stream = Some(stream);
        Ok(())
    }

    async fn reconnect(&mut self) -> Result<(), StoreError> {
        let deadline = Instant::now() + RECONNECT_TIMEOUT;
        let mut pause = MIN_BACKOFF;
        loop {
            match self.connect().await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() + pause > deadline => return Err(error),
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }
}
