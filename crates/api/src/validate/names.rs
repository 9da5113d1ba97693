//! Name formats, and their names in the rule tables.

pub use formats::names::*;

use super::resource_name;

/// Whether a word is in a space-separated list.
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

/// The formats by their name in the tables.
const NAME_FORMATS: &[(&str, Form)] = &[
    ("any", |_| Vec::new()),
    ("subdomain", subdomain),
    ("long_name", |text| in_bytes(subdomain(text), 253)),
    ("short_name", |text| in_bytes(label(text), 63)),
    ("long_name_caseless", long_name_caseless),
    ("wildcard", wildcard),
    ("label", label),
    ("label_1035", label_1035),
    ("path_segment", path_segment),
    ("qualified", qualified),
    ("label_value", label_value),
    ("config_key", config_key),
    ("variable", variable),
    ("port_name", port),
    ("c_identifier", c_identifier),
    ("header", header),
    ("driver", subdomain_caseless),
    ("prefix", prefix_of_subdomain),
    ("semver", semver),
    ("not_blank", |text| unless(text.is_empty() || !text.trim().is_empty(), "must be non-empty if specified")),
    ("one_line", |text| unless(!text.trim().contains(['\n', '\r']), "must not contain line breaks")),
    ("simple_path", |text| unless(text.starts_with('.'), "must be a simple json path starting with .")),
    ("trimmed", |text| unless(text.trim() == text, "must not have leading or trailing whitespace")),
    ("unpadded", |text| unless(text.trim() == text, "must not be padded with whitespace")),
    ("absolute", |text| unless(text.starts_with('/'), "must be an absolute path")),
    ("backsteps", no_backsteps),
    ("relative", relative),
    ("inner", inner),
    ("slashless", |text| unless(!text.contains('/'), "must not contain '/'")),
    ("canonical_ip", super::ip_address::canonical_ip_errors),
    ("stored_version", super::storage::storage_version_name),
    ("condition_reason", super::metadata::condition_reason),
    ("extended_resource", |text| {
        unless(resource_name::is_extended_resource(text), "must be a valid extended resource name")
    }),
];

/// Returns a format by its name in the tables.
pub(super) fn find_format(name: &str) -> Option<Form> {
    NAME_FORMATS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

/// The formats' names in the tables.
#[cfg(test)]
pub(super) fn format_words() -> impl Iterator<Item = &'static str> {
    NAME_FORMATS.iter().map(|(name, _)| *name)
}
