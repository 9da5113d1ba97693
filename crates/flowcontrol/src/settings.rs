//! Limits of concurrent requests and their durations.

use std::time::Duration;

/// How much is worked on at once, and for how long.
#[derive(Clone, Debug)]
pub struct Load {
    /// Reads at once.
    pub reads: usize,
    /// Writes at once.
    pub writes: usize,
    /// Whether requests are queued by flow schemas and priority levels; otherwise only the two numbers count.
    pub fairness: bool,
    /// How long a request may take, unless it is a watch or a stream.
    pub request_timeout: Duration,
    /// How long a watch lasts at least.
    pub watch_timeout: Duration,
    /// The share of HTTP/2 requests that are told to connect anew.
    pub goaway_chance: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            fairness: true,
            request_timeout: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(1800),
            goaway_chance: 0.0,
        }
    }
}

impl Load {
    /// How long a watch lasts whose client does not say so: not all of them end at once.
    pub fn watch_seconds(&self) -> u64 {
        let least = self.watch_timeout.as_secs().max(1);
        least + fastrand::u64(..least)
    }
}
