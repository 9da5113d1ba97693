//! Reinvocation of mutating admission: when a policy or webhook changes an object, the chain runs once more. The second
//! round calls only policies and webhooks with `reinvocationPolicy: IfNeeded` that ran before the change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Value;

/// Reinvocation state of the admission of one object.
#[derive(Debug, Default)]
pub struct ReinvocationContext(Mutex<ReinvocationState>);

/// A group of reinvocable plug-ins; each tracks its own state.
#[derive(Clone, Copy, Debug)]
pub enum ReinvocationGroup {
    /// Mutating admission policies.
    Policies,
    /// Mutating webhooks.
    Webhooks,
}

#[derive(Debug, Default)]
struct ReinvocationState {
    /// The current round: 0, or 1 during reinvocation.
    round: usize,
    /// Whether a change requires a second round.
    reinvoke: bool,
    /// State by [`ReinvocationGroup`].
    groups: [GroupState; 2],
}

#[derive(Debug, Default)]
struct GroupState {
    /// Members called since the last change that support reinvocation.
    called: Vec<String>,
    /// Members to call in the next round.
    due: Vec<String>,
    /// The object after the group's last call.
    last_output: Option<Value>,
}

impl GroupState {
    fn require_reinvocation(&mut self) {
        let called = std::mem::take(&mut self.called);
        self.due.extend(called);
    }
}

impl ReinvocationContext {
    /// The current round: 0, or 1 during reinvocation.
    pub fn round(&self) -> usize {
        self.lock().round
    }

    /// Starts the second round if one is required; returns whether it did.
    pub fn start_reinvocation(&self) -> bool {
        let mut state = self.lock();
        let more = state.round == 0 && state.reinvoke;
        state.round += usize::from(more);
        more
    }

    /// Begins the calls of a group. In the second round, a change made outside the group makes its members due.
    pub fn begin_group(&self, group: ReinvocationGroup, object: &Value) {
        let mut state = self.lock();
        let again = state.round > 0;
        let group_state = &mut state.groups[group as usize];
        if again && group_state.last_output.as_ref() != Some(object) {
            group_state.require_reinvocation();
        }
    }

    /// Whether a member of the group is called in this round.
    pub fn should_invoke(&self, group: ReinvocationGroup, id: &str) -> bool {
        let state = self.lock();
        state.round == 0 || state.groups[group as usize].due.iter().any(|due| due == id)
    }

    /// Records the call of a member: whether it supports reinvocation and whether it changed the object.
    pub fn record_call(&self, group: ReinvocationGroup, id: &str, again: bool, changed: bool) {
        let mut state = self.lock();
        state.reinvoke |= changed;
        let group_state = &mut state.groups[group as usize];
        if changed {
            group_state.require_reinvocation();
        }
        if again {
            group_state.called.push(id.to_owned());
        }
    }

    /// Ends the calls of a group and remembers the resulting object.
    pub fn end_group(&self, group: ReinvocationGroup, object: &Value) {
        let mut state = self.lock();
        if state.reinvoke {
            state.groups[group as usize].last_output = Some(object.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReinvocationState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
