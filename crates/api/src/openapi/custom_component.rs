//! Keys and names of the components of custom resources.

/// The prefix of component keys that contain their name.
const NAMED_PREFIX: char = '@';

/// The component key of a kind.
pub(super) fn custom_component_key(group: &str, version: &str, kind: &str) -> String {
    format!("{NAMED_PREFIX}{}", model_name(group, version, kind))
}

/// The component name in a key.
pub(super) fn custom_component_name(key: &str) -> Option<&str> {
    key.strip_prefix(NAMED_PREFIX)
}

/// The model name of a kind: `com.example.v1.Boat`.
pub fn model_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    parts.extend([version, kind]);
    parts.join(".")
}
