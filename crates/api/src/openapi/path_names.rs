//! Paths of group-versions, and names of operations and tags.

/// Formats `api/v1` or `apis/apps/v1`.
pub(super) fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Formats the group in one word: `core`, `apps` or `rbacAuthorization`.
pub(super) fn group_word(group: &str) -> String {
    if group.is_empty() {
        return "core".to_owned();
    }
    camel_case(group.strip_suffix(".k8s.io").unwrap_or(group), false)
}

/// Camel-cases a text: `certManagerIo` or `CertManagerIo`. A digit does not begin a word.
pub(super) fn camel_case(text: &str, mut capital: bool) -> String {
    let mut word = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let fits = letter.is_alphabetic() || letter == '_' || at > 0 && letter.is_numeric();
        if fits {
            word.push(if capital { letter.to_ascii_uppercase() } else { letter });
        }
        capital = !fits;
    }
    word
}

/// Formats `rbacAuthorization_v1`.
pub(super) fn operation_tag(group: &str, version: &str) -> String {
    format!("{}_{}", group_word(group), camel_case(version, false))
}

/// Formats `RbacAuthorizationV1`.
pub(super) fn operation_infix(group: &str, version: &str) -> String {
    capitalize_first(&group_word(group)) + &camel_case(version, true)
}

/// Capitalizes the first letter.
pub(super) fn capitalize_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_camel_cased() {
        let check = |group: &str, version: &str, tag_wanted: &str, infix_wanted: &str| {
            assert_eq!(
                (operation_tag(group, version).as_str(), operation_infix(group, version).as_str()),
                (tag_wanted, infix_wanted)
            );
        };
        check("", "v1", "core_v1", "CoreV1");
        check("rbac.authorization.k8s.io", "v1", "rbacAuthorization_v1", "RbacAuthorizationV1");
        check("acme.cert-manager.io", "v1", "acmeCertManagerIo_v1", "AcmeCertManagerIoV1");
        check("cluster.x-k8s.io", "v1beta1", "clusterXK8sIo_v1beta1", "ClusterXK8sIoV1beta1");
        check("3scale.net", "v1", "ScaleNet_v1", "ScaleNetV1");
        check("a.2b.io", "v1-x", "a2bIo_v1X", "A2bIoV1X");
    }
}
