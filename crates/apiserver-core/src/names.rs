//! Generated object names (`metadata.generateName`).

/// Characters of generated suffixes: no vowels, so no words.
const SUFFIX_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// Maximum length of a generated name.
const MAX_NAME_LENGTH: usize = 63;

/// Returns `base`, truncated as needed, with a random suffix.
pub fn generate_name(base: &str) -> String {
    let keep: String = base.chars().take(MAX_NAME_LENGTH - SUFFIX_LENGTH).collect();
    let suffix = (0..SUFFIX_LENGTH).map(|_| SUFFIX_CHARACTERS[fastrand::usize(..SUFFIX_CHARACTERS.len())] as char);
    keep + &suffix.collect::<String>()
}
