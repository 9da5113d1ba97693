//! Answers that are remembered for a while; how many is bounded, and the least recently used go first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Answers by question.
pub struct Memory<T> {
    /// How many at most.
    capacity: usize,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    answers: HashMap<String, Remembered<T>>,
    /// The questions in the order of their last use.
    order: BTreeMap<u64, String>,
    uses: u64,
}

struct Remembered<T> {
    answer: T,
    until: Instant,
    used: u64,
}

impl<T: Clone> Memory<T> {
    /// Of so many answers at most.
    pub fn of(capacity: usize) -> Self {
        Self { capacity, held: Mutex::new(Held { answers: HashMap::new(), order: BTreeMap::new(), uses: 0 }) }
    }

    /// What was answered, if that still counts.
    pub fn get(&self, question: &str) -> Option<T> {
        let mut held = self.held();
        if held.answers.get(question)?.until <= Instant::now() {
            held.forget(question);
            return None;
        }
        held.uses += 1;
        let now = held.uses;
        let remembered = held.answers.get_mut(question)?;
        let (answer, before) = (remembered.answer.clone(), std::mem::replace(&mut remembered.used, now));
        if let Some(question) = held.order.remove(&before) {
            held.order.insert(now, question);
        }
        Some(answer)
    }

    /// Remembers an answer for a time; none at all is possible.
    pub fn put(&self, question: String, answer: T, lifetime: Duration) {
        if lifetime.is_zero() {
            return;
        }
        let mut held = self.held();
        held.forget(&question);
        if held.answers.len() >= self.capacity
            && let Some((_, oldest)) = held.order.pop_first()
        {
            held.answers.remove(&oldest);
        }
        held.uses += 1;
        let used = held.uses;
        held.order.insert(used, question.clone());
        held.answers.insert(question, Remembered { answer, until: Instant::now() + lifetime, used });
    }

    fn held(&self) -> MutexGuard<'_, Held<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Held<T> {
    fn forget(&mut self, question: &str) {
        if let Some(remembered) = self.answers.remove(question) {
            self.order.remove(&remembered.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64;

    #[test]
    fn what_was_not_used_for_long_goes_first() {
        let memory = Memory::of(CAPACITY);
        let long = Duration::from_secs(60);
        for at in 0..CAPACITY {
            memory.put(at.to_string(), at, long);
        }
        assert_eq!(memory.get("0"), Some(0));
        memory.put("new".into(), 7, long);
        assert_eq!((memory.get("0"), memory.get("1"), memory.get("new")), (Some(0), None, Some(7)));
        assert_eq!(memory.held().answers.len(), CAPACITY);
    }

    #[test]
    fn answers_count_for_their_time() {
        let memory = Memory::of(CAPACITY);
        memory.put("never".into(), 1, Duration::ZERO);
        memory.put("over".into(), 2, Duration::from_nanos(1));
        assert_eq!((memory.get("never"), memory.get("over")), (None, None));
        assert!(memory.held().order.is_empty());
    }
}
