//! Reinvocation of mutating admission: when a policy or webhook changes an object, the chain runs once more. The second
//! round calls only policies and webhooks with `reinvocationPolicy: IfNeeded` that ran before the change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Value;

/// Reinvocation state of the admission of one object.
#[derive(Debug, Default)]
pub struct ReinvocationContext(Mutex<State>);

/// A group of reinvocable plug-ins; each tracks its own state.
#[derive(Clone, Copy, Debug)]
pub enum ReinvocationGroup {
    /// Mutating admission policies.
    Policies,
    /// Mutating webhooks.
    Webhooks,
}

#[derive(Debug, Default)]
struct State {
    /// The current round: 0, or 1 during reinvocation.
    round: usize,
    /// Whether a change requires a second round.
    again: bool,
    /// State by [`ReinvocationGroup`].
    seen: [Seen; 2],
}

#[derive(Debug, Default)]
struct Seen {
    /// Members called since the last change that support reinvocation.
    asked: Vec<String>,
    /// Members to call in the next round.
    due: Vec<String>,
    /// The object after the group's last call.
    left: Option<Value>,
}

impl Seen {
    fn changed(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.due.extend(asked);
    }
}

impl ReinvocationContext {
    /// The current round: 0, or 1 during reinvocation.
    pub fn round(&self) -> usize {
        self.lock().round
    }

    /// Starts the second round if one is required; returns whether it did.
    pub fn another(&self) -> bool {
        let mut state = self.lock();
        let more = state.round == 0 && state.again;
        state.round += usize::from(more);
        more
    }

    /// Begins the calls of a group. In the second round, a change made outside the group makes its members due.
    pub fn begin(&self, who: ReinvocationGroup, object: &Value) {
        let mut state = self.lock();
        let again = state.round > 0;
        let seen = &mut state.seen[who as usize];
        if again && seen.left.as_ref() != Some(object) {
            seen.changed();
        }
    }

    /// Whether a member of the group is called in this round.
    pub fn includes(&self, who: ReinvocationGroup, id: &str) -> bool {
        let state = self.lock();
        state.round == 0 || state.seen[who as usize].due.iter().any(|due| due == id)
    }

    /// Records the call of a member: whether it supports reinvocation and whether it changed the object.
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

    /// Ends the calls of a group and remembers the resulting object.
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
