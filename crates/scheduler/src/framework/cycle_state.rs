//! Data that plug-ins hand from one extension point to the next within one cycle.

use std::any::Any;

/// Data of one plug-in; its type is its key.
trait StateData: Any + Send + Sync {
    fn clone_data(&self) -> Box<dyn StateData>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Send + Sync + Clone> StateData for T {
    fn clone_data(&self) -> Box<dyn StateData> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A set of plug-ins, by their positions in the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginSet(u64);

impl PluginSet {
    /// Adds a plug-in.
    pub fn insert(&mut self, plugin: usize) {
        self.0 |= 1u64.checked_shl(plugin as u32).unwrap_or(0);
    }

    /// Whether the plug-in is in the set.
    pub fn contains(self, plugin: usize) -> bool {
        self.0 & 1u64.checked_shl(plugin as u32).unwrap_or(0) != 0
    }
}

/// The state of one cycle. A clone is independent, so that preemption can try changes.
#[derive(Default)]
pub struct CycleState {
    data: Vec<Box<dyn StateData>>,
    /// Data that only the search for a node reads.
    search_data: Vec<Box<dyn StateData>>,
    /// Plug-ins whose filter has nothing to check.
    pub skip_filter: PluginSet,
    /// Plug-ins whose score is the same for all nodes.
    pub skip_score: PluginSet,
    /// Plug-ins with nothing to do before the binding.
    pub skip_pre_bind: PluginSet,
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        // The trait's own method: a box is `Clone` data itself.
        let clone = |all: &[Box<dyn StateData>]| all.iter().map(|data| data.as_ref().clone_data()).collect();
        Self { data: clone(&self.data), search_data: clone(&self.search_data), ..*self }
    }
}

impl CycleState {
    /// Stores data, in place of earlier data of its type.
    pub fn write<T: Any + Send + Sync + Clone>(&mut self, data: T) {
        match self.get_mut::<T>() {
            Some(known) => *known = data,
            None => self.data.push(Box::new(data)),
        }
    }

    /// Stores data that is dropped when a node was found.
    pub fn write_for_search<T: Any + Send + Sync + Clone>(&mut self, data: T) {
        match self.get_mut::<T>() {
            Some(known) => *known = data,
            None => self.search_data.push(Box::new(data)),
        }
    }

    /// Drops the data of the search, which may share counts with the next cycle.
    pub fn end_search(&mut self) {
        self.search_data.clear();
    }

    /// Removes the data of a type.
    pub fn remove<T: Any>(&mut self) {
        self.data.retain(|data| !data.as_ref().as_any().is::<T>());
    }

    /// Returns the data of a type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.search_data.iter().chain(&self.data).find_map(|data| data.as_ref().as_any().downcast_ref())
    }

    /// Returns the data of a type for changes.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        let mut all = self.search_data.iter_mut().chain(&mut self.data);
        all.find_map(|data| data.as_mut().as_any_mut().downcast_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_is_independent() {
        let mut state = CycleState::default();
        state.write(1u32);
        state.write("text");
        state.skip_filter.insert(3);
        let mut other = state.clone();
        other.write(2u32);
        assert_eq!((state.get::<u32>(), other.get::<u32>()), (Some(&1), Some(&2)));
        assert_eq!((other.get::<&str>(), other.get::<u64>()), (Some(&"text"), None));
        other.write_for_search(7u64);
        assert_eq!(other.clone().get::<u64>(), Some(&7));
        other.end_search();
        assert_eq!((other.get::<u64>(), other.get::<u32>()), (None, Some(&2)));
        assert!(other.skip_filter.contains(3) && !other.skip_filter.contains(64));
    }
}
