//! Back-off per key, as upstream does it for crashing containers and failing pulls: the first retry is free.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

/// The first delay that is enforced.
const INITIAL: Duration = Duration::from_secs(10);
/// No delay is longer.
const MAXIMUM: Duration = Duration::from_secs(300);
/// After this long without trouble a key starts over.
const FORGET: Duration = Duration::from_secs(600);

struct Entry {
    delay: Duration,
    updated: Timestamp,
    cause: String,
}

/// The delays of several keys.
#[derive(Default)]
pub struct Backoffs {
    entries: Mutex<HashMap<String, Entry>>,
}

impl Backoffs {
    /// The enforced delay and how much of it is left, if a failure of `key` at `failed` must still wait.
    pub fn waiting(&self, key: &str, failed: Timestamp, now: Timestamp) -> Option<(Duration, Duration)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(key).filter(|entry| elapsed(entry.updated, failed) <= FORGET)?;
        let passed = elapsed(failed, now);
        (passed < entry.delay).then(|| (entry.delay, entry.delay - passed))
    }

    /// Notes that `key`, which failed at `failed`, is tried again: the next failure waits longer.
    pub fn next(&self, key: &str, failed: Timestamp, now: Timestamp) {
        self.next_because(key, failed, now, String::new());
    }

    /// The same, with the cause of the failure.
    pub fn next_because(&self, key: &str, failed: Timestamp, now: Timestamp, cause: String) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = match entries.get(key) {
            Some(entry) if elapsed(entry.updated, failed) <= FORGET => (entry.delay * 2).min(MAXIMUM),
            _ => INITIAL,
        };
        entries.insert(key.into(), Entry { delay, updated: now, cause });
    }

    /// When `key` was last noted; a failing pull has no other time of failure.
    pub fn updated(&self, key: &str) -> Option<Timestamp> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(|entry| entry.updated)
    }

    /// The cause that was noted last.
    pub fn cause(&self, key: &str) -> String {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| entry.cause.clone()).unwrap_or_default()
    }

    /// Starts `key` over.
    pub fn forget(&self, key: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// The time from `from` to `to`, zero if it is the other way round.
fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// A duration as Go prints it, in whole seconds: `10s`, `1m20s`, `5m0s`.
pub fn go_seconds(duration: Duration) -> String {
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
    fn the_first_retry_is_free_then_delays_double_up_to_five_minutes() {
        let backoffs = Backoffs::default();
        let mut now = 1000;
        assert_eq!(backoffs.waiting("c", at(now), at(now)), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoffs.next("c", at(now), at(now));
            let (delay, left) = backoffs.waiting("c", at(now), at(now)).unwrap();
            assert_eq!(delay, left);
            delays.push(delay.as_secs());
            now += delay.as_secs() as i64;
            assert_eq!(backoffs.waiting("c", at(now - delay.as_secs() as i64), at(now)), None);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_start_over() {
        let backoffs = Backoffs::default();
        backoffs.next("c", at(0), at(0));
        assert_eq!(backoffs.waiting("c", at(601), at(601)), None);
        backoffs.next("c", at(601), at(601));
        assert_eq!(backoffs.waiting("c", at(601), at(601)).unwrap().0, INITIAL);
    }

    #[test]
    fn durations_read_like_go_s() {
        let print = |seconds| go_seconds(Duration::from_secs(seconds));
        assert_eq!([print(10), print(80), print(300)], ["10s", "1m20s", "5m0s"]);
    }
}
