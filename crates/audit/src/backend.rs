//! Audit backends: blocking, or batching with a bounded buffer; events beyond it are lost and logged.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::Value;
use apiserver_core::http_client::HttpClientError;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{BackendMode, BatchConfig, LogBackendConfig, TruncateConfig, WebhookBackendConfig, log::AuditLog};

/// A failure of a backend; the event is lost.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The event cannot be truncated to the size limit.
    #[error("the event is too large")]
    TooLarge,
    /// The buffer of a batching backend is full.
    #[error("the buffer is full")]
    BufferFull,
    /// The log file cannot be written.
    #[error(transparent)]
    Log(#[from] std::io::Error),
    /// The webhook call failed.
    #[error(transparent)]
    Webhook(#[from] HttpClientError),
}

/// A destination of events.
pub struct AuditBackend {
    sink: Arc<EventSink>,
    mode: BackendMode,
    truncation: TruncateConfig,
    queue: Option<mpsc::Sender<BufferedMessage>>,
}

enum EventSink {
    Log(Mutex<AuditLog>),
    Webhook(WebhookBackendConfig),
}

enum BufferedMessage {
    Event(Arc<Value>),
    /// Requests that all earlier events are written.
    Flush(oneshot::Sender<()>),
}

impl AuditBackend {
    /// A log backend.
    pub fn with_log(settings: LogBackendConfig) -> Self {
        let (mode, batch, truncation) = (settings.mode, settings.batch, settings.truncation);
        Self::new(EventSink::Log(Mutex::new(AuditLog::new(settings))), mode, batch, truncation)
    }

    /// A webhook backend.
    pub fn with_webhook(settings: WebhookBackendConfig) -> Self {
        let (mode, batch, truncation) = (settings.mode, settings.batch, settings.truncation);
        Self::new(EventSink::Webhook(settings), mode, batch, truncation)
    }

    fn new(sink: EventSink, mode: BackendMode, batch: BatchConfig, truncation: TruncateConfig) -> Self {
        let sink = Arc::new(sink);
        let queue = (mode == BackendMode::Batch).then(|| {
            let (sender, receiver) = mpsc::channel(batch.buffer.max(1));
            tokio::spawn(run_batch_worker(sink.clone(), receiver, batch, truncation));
            sender
        });
        Self { sink, mode, truncation, queue }
    }

    /// Whether a failure rejects the request.
    pub fn is_strict(&self) -> bool {
        self.mode == BackendMode::BlockingStrict
    }

    /// Accepts an event.
    pub async fn process_event(&self, event: &Arc<Value>) -> Result<(), BackendError> {
        let event = if self.truncation.enabled {
            Arc::new(self.truncation.truncate_event((**event).clone()).ok_or(BackendError::TooLarge)?)
        } else {
            event.clone()
        };
        match &self.queue {
            Some(queue) => queue.try_send(BufferedMessage::Event(event)).map_err(|_| BackendError::BufferFull),
            None => self.sink.write_events(&[event]).await,
        }
    }

    /// Waits until all accepted events are written.
    pub async fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let (done, flushed) = oneshot::channel();
        if queue.send(BufferedMessage::Flush(done)).await.is_ok() {
            // The worker has ended, so nothing is buffered.
            let _ = flushed.await;
        }
    }
}

impl EventSink {
    async fn write_events(&self, events: &[Arc<Value>]) -> Result<(), BackendError> {
        match self {
            EventSink::Log(log) => {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(log.append_events(events.iter().map(|event| &**event))?)
            }
            EventSink::Webhook(webhook) => Ok(webhook.send_events(events).await?),
        }
    }
}

/// Writes batches until all senders are gone.
async fn run_batch_worker(
    sink: Arc<EventSink>,
    mut queue: mpsc::Receiver<BufferedMessage>,
    batch: BatchConfig,
    truncation: TruncateConfig,
) {
    let mut throttle = BatchThrottle::new(batch.throttle);
    loop {
        let (events, flushed, over) = collect_batch(&mut queue, &batch).await;
        for events in truncation.split_batch(events) {
            if events.is_empty() {
                continue;
            }
            throttle.wait_for_token().await;
            if let Err(error) = sink.write_events(&events).await {
                tracing::error!(%error, events = events.len(), "audit: backend failed, events are lost");
            }
        }
        if let Some(flushed) = flushed {
            // The caller may have stopped waiting.
            let _ = flushed.send(());
        }
        if over {
            return;
        }
    }
}

/// Collects a batch; returns its events, a waiting flush and whether the queue is closed.
async fn collect_batch(
    queue: &mut mpsc::Receiver<BufferedMessage>,
    batch: &BatchConfig,
) -> (Vec<Arc<Value>>, Option<oneshot::Sender<()>>, bool) {
    let mut events = Vec::new();
    let mut until = None;
    while events.len() < batch.size.max(1) {
        let next = match until {
            None => Ok(queue.recv().await),
            Some(until) => tokio::time::timeout_at(until, queue.recv()).await,
        };
        match next {
            Ok(Some(BufferedMessage::Event(event))) => {
                until.get_or_insert_with(|| Instant::now() + batch.wait);
                events.push(event);
            }
            Ok(Some(BufferedMessage::Flush(flushed))) => return (events, Some(flushed), false),
            Ok(None) => return (events, None, true),
            Err(_) => break,
        }
    }
    (events, None, false)
}

/// A token bucket for batches.
struct BatchThrottle {
    limit: Option<(f64, f64)>,
    tokens: f64,
    at: Instant,
}

impl BatchThrottle {
    fn new(throttle: Option<(f64, u32)>) -> Self {
        let limit = throttle.filter(|(rate, _)| *rate > 0.0).map(|(rate, burst)| (rate, f64::from(burst.max(1))));
        Self { limit, tokens: limit.map_or(0.0, |(_, burst)| burst), at: Instant::now() }
    }

    async fn wait_for_token(&mut self) {
        let Some((rate, burst)) = self.limit else { return };
        let now = Instant::now();
        self.tokens = (self.tokens + (now - self.at).as_secs_f64() * rate).min(burst) - 1.0;
        self.at = now;
        if self.tokens < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.tokens / rate)).await;
        }
    }
}
