//! The limits of kept history, for the embedded engine and for the watch cache.

use std::time::Duration;

/// The limits of kept history, by age, count and memory.
#[derive(Clone, Copy, Debug)]
pub struct HistoryWindow {
    /// Changes younger than this are kept.
    pub keep_for: Duration,
    /// At least this many of the newest changes are kept.
    pub keep_changes: usize,
    /// Changes beyond that many are kept only while all together take no more memory than about this.
    pub spare_bytes: usize,
    /// The changes never take more memory than about this; it wins over everything else.
    pub keep_bytes: usize,
}

impl Default for HistoryWindow {
    fn default() -> Self {
        Self { keep_for: Duration::from_secs(600), keep_changes: 10_000, spare_bytes: 16 << 20, keep_bytes: 48 << 20 }
    }
}

impl HistoryWindow {
    /// Returns whether the oldest of `changes` changes, which take `bytes` together, is outside. `is_old`: it was made
    /// longer than [`HistoryWindow::keep_for`] ago.
    pub(crate) fn is_expired(&self, changes: usize, bytes: usize, is_old: bool) -> bool {
        bytes > self.keep_bytes || changes > self.keep_changes && (is_old || bytes > self.spare_bytes)
    }
}
