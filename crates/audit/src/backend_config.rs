//! Configuration that log and webhook backends share.

use std::time::Duration;

/// The mode of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendMode {
    /// Events are buffered and written in batches.
    Batch,
    /// Events are written before the request continues.
    #[default]
    Blocking,
    /// Like `Blocking`; a failure at RequestReceived rejects the request.
    BlockingStrict,
}

/// Batching of events.
#[derive(Clone, Copy, Debug)]
pub struct BatchConfig {
    /// Buffer size; events beyond it are lost.
    pub buffer: usize,
    /// Maximum batch size.
    pub size: usize,
    /// Maximum wait of the first event of a batch.
    pub wait: Duration,
    /// Batches per second and burst; `None` is unlimited.
    pub throttle: Option<(f64, u32)>,
}
