//! Rounds of mutating admission: when a webhook changes an object, the whole chain is asked once more, and of the webhooks
//! those that want to and that have not seen the change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Value;

/// What happened so far in the admission of one object.
#[derive(Debug, Default)]
pub struct Rounds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// 0, or 1 when asked again.
    round: usize,
    /// Whether to ask again.
    again: bool,
    /// Webhooks that were asked since the last change, and want to be asked again.
    asked: Vec<String>,
    /// Webhooks that the next round asks.
    due: Vec<String>,
    /// What the last webhook left.
    left: Option<Value>,
}

impl State {
    fn changed(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.due.extend(asked);
    }
}

impl Rounds {
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

    /// Webhooks are about to be asked about `object`.
    pub fn begin(&self, object: &Value) {
        let mut state = self.lock();
        if state.round > 0 && state.left.as_ref() != Some(object) {
            state.changed();
        }
    }

    /// Whether a webhook is asked in this round.
    pub fn includes(&self, id: &str) -> bool {
        let state = self.lock();
        state.round == 0 || state.due.iter().any(|due| due == id)
    }

    /// A webhook was asked.
    pub fn called(&self, id: &str, again: bool, changed: bool) {
        let mut state = self.lock();
        if changed {
            state.changed();
            state.again = true;
        }
        if again {
            state.asked.push(id.to_owned());
        }
    }

    /// All webhooks were asked.
    pub fn end(&self, object: &Value) {
        let mut state = self.lock();
        if state.again {
            state.left = Some(object.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
