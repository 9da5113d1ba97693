//! Persistent volumes: when the phase changed last.

use api::Value;
use apiserver_core::{User, clock};

use super::{
    Strategy,
    subresource::{keep, with_status},
};

const CHANGED: &str = "lastPhaseTransitionTime";

/// The strategy of persistent volumes.
pub struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn prepare_create(&self, volume: &mut Value, _: &User) {
        volume["status"][CHANGED] = clock::seconds().into();
    }

    fn through(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        let mut volume = with_status(object, current);
        let (new, old) = (volume["status"].get(CHANGED).cloned(), current["status"].get(CHANGED).cloned());
        if volume["status"]["phase"] == current["status"]["phase"] {
            if new.is_none() {
                keep(&mut volume["status"], &current["status"], &[CHANGED]);
            }
        } else if new.is_none() || new == old {
            volume["status"][CHANGED] = clock::seconds().into();
        }
        volume
    }
}
