//! Name formats.

pub use formats::names::*;

/// Whether a word is in a space-separated list.
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}
