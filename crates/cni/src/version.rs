//! Versions of the specification.

use serde_json::{Value, json};

/// The versions that plug-ins understand.
pub const SUPPORTED: [&str; 8] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", ""];
/// The newest version.
pub const NEWEST: &str = "1.1.0";
/// The version of a configuration that names none.
const OLDEST: &str = "0.1.0";

/// The version that a configuration names; that of the oldest specification if it names none or is not readable.
pub fn version_of_input(input: &[u8]) -> String {
    let object: Value = serde_json::from_slice(input).unwrap_or_default();
    let named = object.get("cniVersion").and_then(Value::as_str).filter(|version| !version.is_empty());
    named.unwrap_or(OLDEST).to_owned()
}

/// Whether `version` is at least `other`, by numbers.
pub fn is_at_least(version: &str, other: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    numbers(version) >= numbers(other)
}

/// Answers VERSION.
pub fn render_versions(input: &[u8]) -> String {
    let object: Value = serde_json::from_slice(input).unwrap_or_default();
    let asked = object.get("cniVersion").and_then(Value::as_str).unwrap_or(NEWEST);
    let supported: Vec<&str> = SUPPORTED.into_iter().filter(|version| !version.is_empty()).collect();
    let known = if supported.contains(&asked) { asked } else { NEWEST };
    json!({ "cniVersion": known, "supportedVersions": supported }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(is_at_least("1.0.0", "0.4.0") && is_at_least("0.4.0", "0.4.0") && !is_at_least("0.3.1", "0.4.0"));
        assert_eq!(version_of_input(b"{}"), "0.1.0");
        assert_eq!(version_of_input(b"not json"), "0.1.0");
    }
}
