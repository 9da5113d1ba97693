//! Persistent volumes: `lastPhaseTransitionTime`.

use api::Value;
use apiserver_core::{User, clock};

use super::{
    Strategy,
    subresource::{copy_fields, with_status},
};

const PHASE_TRANSITION_TIME: &str = "lastPhaseTransitionTime";

/// The strategy of persistent volumes.
pub struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn prepare_create(&self, volume: &mut Value, _: &User) {
        volume["status"][PHASE_TRANSITION_TIME] = clock::now_in_seconds().into();
    }

    fn update_subresource(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        let mut volume = with_status(object, current);
        let (new, old) = (
            volume["status"].get(PHASE_TRANSITION_TIME).cloned(),
            current["status"].get(PHASE_TRANSITION_TIME).cloned(),
        );
        if volume["status"]["phase"] == current["status"]["phase"] {
            if new.is_none() {
                copy_fields(&mut volume["status"], &current["status"], &[PHASE_TRANSITION_TIME]);
            }
        } else if new.is_none() || new == old {
            volume["status"][PHASE_TRANSITION_TIME] = clock::now_in_seconds().into();
        }
        volume
    }
}
