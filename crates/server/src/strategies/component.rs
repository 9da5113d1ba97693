//! Parts of the control plane: asked, not stored.

use super::{Answers, Strategy};
use crate::components::Components;

pub struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn answers(&self, _: &str) -> Option<&dyn Answers> {
        Some(&Components)
    }
}
