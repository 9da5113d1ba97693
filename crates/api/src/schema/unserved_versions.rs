//! Group-versions with kinds but without resources: removed versions, and types that components exchange.

/// The group-versions of upstream's schemes that serve nothing: `group: versions`.
const VERSIONS_WITHOUT_RESOURCES: &str = include_str!("../../schema/unserved_versions.txt");

/// Iterates over the group-versions.
pub(crate) fn versions_without_resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = VERSIONS_WITHOUT_RESOURCES.lines().filter_map(|line| line.split_once(": "));
    rows.flat_map(|(group, versions)| versions.split(' ').map(move |version| (group, version)))
}
