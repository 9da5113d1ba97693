//! Rounds of mutating admission: when a policy or a webhook changes an object, the whole chain is asked once more, and of
//! them those that want to and that have not seen the change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Value;

/// What happened so far in the admission of one object.
#[derive(Debug, Default)]
pub struct ReinvocationContext(Mutex<State>);

/// Of whom some are asked again.
#[derive(Clone, Copy, Debug)]
pub enum ReinvocationGroup {
    /// Policies.
    Policies,
    /// Webhooks.
    Webhooks,
}

#[derive(Debug, Default)]
struct State {
    /// 0, or 1 when asked again.
    round: usize,
    /// Whether to ask again.
    again: bool,
    /// By [`ReinvocationGroup`].
    seen: [Seen; 2],
}

#[derive(Debug, Default)]
struct Seen {
    /// Those that were asked since the last change, and want to be asked again.
    asked: Vec<String>,
    /// Those that the next round asks.
    due: Vec<String>,
    /// What the last of them left.
    left: Option<Value>,
}

impl Seen {
    fn changed(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.due.extend(asked);
    }
}

impl ReinvocationContext {
    /// 0, or 1 when asked again.
    pub fn round(&self) -> usize {
        self.lock().round
    }

    /// Whether the chain is to be asked once more; it then is in its next round.
    pub fn another(&self) -> bool {
        let mut state = self.lock();
        let more = state.round == 0 && state.again;
        state.round += usize::from(more);
        more
    }

    /// They are about to be asked about `object`.
    pub fn begin(&self, who: ReinvocationGroup, object: &Value) {
        let mut state = self.lock();
        let again = state.round > 0;
        let seen = &mut state.seen[who as usize];
        if again && seen.left.as_ref() != Some(object) {
            seen.changed();
        }
    }

    /// Whether one of them is asked in this round.
    pub fn includes(&self, who: ReinvocationGroup, id: &str) -> bool {
        let state = self.lock();
        state.round == 0 || state.seen[who as usize].due.iter().any(|due| due == id)
    }

    /// One of them was asked.
    pub fn called(&self, who: ReinvocationGroup, id: &str, again: bool, changed: bool) {
        let mut state = self.lock();
        state.again |= changed;
        let seen = &mut state.seen[who as usize];
        if changed {
            seen.changed();
        }
        if again {
            seen.asked.push(id.to_owned());
        }
    }

    /// All of them were asked.
    pub fn end(&self, who: ReinvocationGroup, object: &Value) {
        let mut state = self.lock();
        if state.again {
            state.seen[who as usize].left = Some(object.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
