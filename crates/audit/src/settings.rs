//! Where events go.

use std::time::Duration;

use super::{LogSettings, Policy, WebhookSettings};

/// What is audited, and where that goes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// What; without, nothing.
    pub policy: Option<Policy>,
    /// A log.
    pub log: Option<LogSettings>,
    /// A webhook.
    pub webhook: Option<WebhookSettings>,
}

/// When an event is passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Later, together with others.
    Batch,
    /// Before the request goes on.
    #[default]
    Blocking,
    /// The same, and a request whose beginning cannot be told of is refused.
    BlockingStrict,
}

/// How events wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct BatchSettings {
    /// How many may wait; those beyond are lost.
    pub buffer: usize,
    /// How many go together at most.
    pub size: usize,
    /// How long the first one waits.
    pub wait: Duration,
    /// How many batches go per second, and how many at once; `None`: as many as there are.
    pub throttle: Option<(f64, u32)>,
}

/// What becomes of large events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truncation {
    /// Whether they are cut at all.
    pub enabled: bool,
    /// How large an event may be, in bytes.
    pub event: usize,
    /// How large a batch may be, in bytes.
    pub batch: usize,
}
