//! Audit backends: blocking, or batching with a bounded buffer; events beyond it are lost and logged.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{BatchSettings, LogSettings, Mode, Truncation, WebhookSettings, log::Log};

/// A destination of events.
pub struct Output {
    sink: Arc<Sink>,
    mode: Mode,
    truncation: Truncation,
    queue: Option<mpsc::Sender<Message>>,
}

enum Sink {
    Log(Mutex<Log>),
    Webhook(WebhookSettings),
}

enum Message {
    Event(Arc<Value>),
    /// Requests that all earlier events are written.
    Flush(oneshot::Sender<()>),
}

impl Output {
    /// A log backend.
    pub fn log(settings: LogSettings) -> Self {
        let (mode, batch, truncation) = (settings.mode, settings.batch, settings.truncation);
        Self::new(Sink::Log(Mutex::new(Log::new(settings))), mode, batch, truncation)
    }

    /// A webhook backend.
    pub fn webhook(settings: WebhookSettings) -> Self {
        let (mode, batch, truncation) = (settings.mode, settings.batch, settings.truncation);
        Self::new(Sink::Webhook(settings), mode, batch, truncation)
    }

    fn new(sink: Sink, mode: Mode, batch: BatchSettings, truncation: Truncation) -> Self {
        let sink = Arc::new(sink);
        let queue = (mode == Mode::Batch).then(|| {
            let (sender, receiver) = mpsc::channel(batch.buffer.max(1));
            tokio::spawn(work(sink.clone(), receiver, batch, truncation));
            sender
        });
        Self { sink, mode, truncation, queue }
    }

    /// Whether a failure rejects the request.
    pub fn is_strict(&self) -> bool {
        self.mode == Mode::BlockingStrict
    }

    /// Accepts an event.
    pub async fn take(&self, event: &Arc<Value>) -> Result<(), String> {
        let event = if self.truncation.enabled {
            Arc::new(self.truncation.cut((**event).clone()).ok_or("it is too large")?)
        } else {
            event.clone()
        };
        match &self.queue {
            Some(queue) => queue.try_send(Message::Event(event)).map_err(|_| "too many wait".to_owned()),
            None => self.sink.write(&[event]).await,
        }
    }

    /// Waits until all accepted events are written.
    pub async fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let (done, flushed) = oneshot::channel();
        if queue.send(Message::Flush(done)).await.is_ok() {
            // The worker has ended, so nothing is buffered.
            let _ = flushed.await;
        }
    }
}

impl Sink {
    async fn write(&self, events: &[Arc<Value>]) -> Result<(), String> {
        match self {
            Sink::Log(log) => {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.write(events.iter().map(|event| &**event)).map_err(|error| error.to_string())
            }
            Sink::Webhook(webhook) => webhook.send(events).await,
        }
    }
}

/// Writes batches until all senders are gone.
async fn work(sink: Arc<Sink>, mut queue: mpsc::Receiver<Message>, batch: BatchSettings, truncation: Truncation) {
    let mut pace = Pace::new(batch.throttle);
    loop {
        let (events, flushed, over) = collect(&mut queue, &batch).await;
        for events in truncation.split(events) {
            if events.is_empty() {
                continue;
            }
            pace.wait().await;
            if let Err(why) = sink.write(&events).await {
                tracing::error!(error = why, events = events.len(), "audit: backend failed, events are lost");
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
async fn collect(
    queue: &mut mpsc::Receiver<Message>,
    batch: &BatchSettings,
) -> (Vec<Arc<Value>>, Option<oneshot::Sender<()>>, bool) {
    let mut events = Vec::new();
    let mut until = None;
    while events.len() < batch.size.max(1) {
        let next = match until {
            None => Ok(queue.recv().await),
            Some(until) => tokio::time::timeout_at(until, queue.recv()).await,
        };
        match next {
            Ok(Some(Message::Event(event))) => {
                until.get_or_insert_with(|| Instant::now() + batch.wait);
                events.push(event);
            }
            Ok(Some(Message::Flush(flushed))) => return (events, Some(flushed), false),
            Ok(None) => return (events, None, true),
            Err(_) => break,
        }
    }
    (events, None, false)
}

/// A token bucket for batches.
struct Pace {
    limit: Option<(f64, f64)>,
    tokens: f64,
    at: Instant,
}

impl Pace {
    fn new(throttle: Option<(f64, u32)>) -> Self {
        let limit = throttle.filter(|(rate, _)| *rate > 0.0).map(|(rate, burst)| (rate, f64::from(burst.max(1))));
        Self { limit, tokens: limit.map_or(0.0, |(_, burst)| burst), at: Instant::now() }
    }

    async fn wait(&mut self) {
        let Some((rate, burst)) = self.limit else { return };
        let now = Instant::now();
        self.tokens = (self.tokens + (now - self.at).as_secs_f64() * rate).min(burst) - 1.0;
        self.at = now;
        if self.tokens < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.tokens / rate)).await;
        }
    }
}
