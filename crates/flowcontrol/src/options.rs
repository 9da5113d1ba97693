//! Limits of concurrent requests and their durations.

use std::time::Duration;

/// Limits of concurrent requests and their durations.
#[derive(Clone, Debug)]
pub struct FlowControlOptions {
    /// Maximum concurrent reads.
    pub reads: usize,
    /// Maximum concurrent writes.
    pub writes: usize,
    /// Whether priority and fairness is enabled; otherwise only the two limits apply.
    pub fairness: bool,
    /// Timeout of requests other than watches and streams.
    pub request_timeout: Duration,
    /// Minimum duration of a watch.
    pub watch_timeout: Duration,
    /// Probability of GOAWAY for HTTP/2 requests.
    pub goaway_chance: f64,
}

impl Default for FlowControlOptions {
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

impl FlowControlOptions {
    /// Returns a random watch duration, so that watches do not all end at once.
    pub fn random_watch_seconds(&self) -> u64 {
        let least = self.watch_timeout.as_secs().max(1);
        least + fastrand::u64(..least)
    }
}
