//! Paths of group-versions, and how operations and tags are named after them.

/// `api/v1` or `apis/apps/v1`.
pub(super) fn of_version(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `core`, `apps` or `rbacAuthorization`: the group in one word.
pub(super) fn word(group: &str) -> String {
    if group.is_empty() {
        return "core".to_owned();
    }
    let mut parts = group.trim_end_matches(".k8s.io").split('.');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |word, part| word + &title(part))
}

/// `rbacAuthorization_v1`
pub(super) fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", word(group))
}

/// `RbacAuthorizationV1`
pub(super) fn infix(group: &str, version: &str) -> String {
    title(&word(group)) + &title(version)
}

/// The text with its first letter in upper case.
pub(super) fn title(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
