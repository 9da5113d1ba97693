//! Exponential back-off per key for crashing containers and failing image pulls; the first retry is immediate, as
//! upstream.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

/// The first enforced delay.
const INITIAL_DELAY: Duration = Duration::from_secs(10);
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(300);
/// Time without failure after which a key's back-off resets.
const RESET_PERIOD: Duration = Duration::from_secs(600);

struct BackoffEntry {
    delay: Duration,
    updated: Timestamp,
    cause: String,
}

/// The back-off state of several keys.
#[derive(Default)]
pub struct KeyedBackoff {
    entries: Mutex<HashMap<String, BackoffEntry>>,
}

impl KeyedBackoff {
    /// Returns the enforced delay and the time left of it, if a failure of `key` at `failed` is still in back-off.
    pub fn remaining_delay(&self, key: &str, failed: Timestamp, now: Timestamp) -> Option<(Duration, Duration)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(key).filter(|entry| elapsed_between(entry.updated, failed) <= RESET_PERIOD)?;
        let passed = elapsed_between(failed, now);
        (passed < entry.delay).then(|| (entry.delay, entry.delay - passed))
    }

    /// Records a retry of `key`, which failed at `failed`; the next failure waits longer.
    pub fn record_retry(&self, key: &str, failed: Timestamp, now: Timestamp) {
        self.record_retry_with_cause(key, failed, now, String::new());
    }

    /// Like [`KeyedBackoff::record_retry`], with the cause of the failure.
    pub fn record_retry_with_cause(&self, key: &str, failed: Timestamp, now: Timestamp, cause: String) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = match entries.get(key) {
            Some(entry) if elapsed_between(entry.updated, failed) <= RESET_PERIOD => (entry.delay * 2).min(MAX_DELAY),
            _ => INITIAL_DELAY,
        };
        entries.insert(key.into(), BackoffEntry { delay, updated: now, cause });
    }

    /// Returns the time of the last retry of `key`, the only failure time known for image pulls.
    pub fn last_update(&self, key: &str) -> Option<Timestamp> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(|entry| entry.updated)
    }

    /// Returns the last recorded cause.
    pub fn last_cause(&self, key: &str) -> String {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| entry.cause.clone()).unwrap_or_default()
    }

    /// Resets the back-off of `key`.
    pub fn forget(&self, key: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Returns the time from `from` to `to`, or zero if `to` is earlier.
fn elapsed_between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Formats whole seconds as Go's `time.Duration`: `10s`, `1m20s`, `5m0s`.
pub fn format_go_duration(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn first_retry_is_immediate_and_delays_double_up_to_five_minutes() {
        let backoffs = KeyedBackoff::default();
        let mut now = 1000;
        assert_eq!(backoffs.remaining_delay("c", at(now), at(now)), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoffs.record_retry("c", at(now), at(now));
            let (delay, left) = backoffs.remaining_delay("c", at(now), at(now)).unwrap();
            assert_eq!(delay, left);
            delays.push(delay.as_secs());
            now += delay.as_secs() as i64;
            assert_eq!(backoffs.remaining_delay("c", at(now - delay.as_secs() as i64), at(now)), None);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_minutes_without_failure_reset_the_backoff() {
        let backoffs = KeyedBackoff::default();
        backoffs.record_retry("c", at(0), at(0));
        assert_eq!(backoffs.remaining_delay("c", at(601), at(601)), None);
        backoffs.record_retry("c", at(601), at(601));
        assert_eq!(backoffs.remaining_delay("c", at(601), at(601)).unwrap().0, INITIAL_DELAY);
    }

    #[test]
    fn durations_are_formatted_like_go() {
        let print = |seconds| format_go_duration(Duration::from_secs(seconds));
        assert_eq!([print(10), print(80), print(300)], ["10s", "1m20s", "5m0s"]);
    }
}
