//! Generated object names (`metadata.generateName`).

/// The characters of generated names: no vowels, so no words.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// A generated name is at most this long, suffix included.
const MAX_NAME: usize = 63;

/// A name made of `base` and a random suffix.
pub fn generated(base: &str) -> String {
    let keep: String = base.chars().take(MAX_NAME - SUFFIX_LENGTH).collect();
    let suffix = (0..SUFFIX_LENGTH).map(|_| SUFFIX[fastrand::usize(..SUFFIX.len())] as char);
    keep + &suffix.collect::<String>()
}
