//! The name formats by their names in the rule tables.

use super::{names::*, resource_name};

/// The formats by their name in the tables.
const NAME_FORMATS: &[(&str, NameRule)] = &[
    ("any", |_| Vec::new()),
    ("subdomain", check_dns_subdomain),
    ("long_name", |text| with_byte_lengths(check_dns_subdomain(text), 253)),
    ("short_name", |text| with_byte_lengths(check_dns_label(text), 63)),
    ("long_name_caseless", check_long_name_caseless),
    ("wildcard", check_wildcard_subdomain),
    ("label", check_dns_label),
    ("label_1035", check_1035_label),
    ("path_segment", check_path_segment),
    ("qualified", check_qualified_name),
    ("label_value", check_label_value),
    ("config_key", check_config_key),
    ("variable", check_env_var_name),
    ("port_name", check_port_name),
    ("c_identifier", check_c_identifier),
    ("header", check_http_header_name),
    ("driver", check_caseless_subdomain),
    ("prefix", check_subdomain_prefix),
    ("semver", check_semver),
    ("not_blank", |text| error_unless(text.is_empty() || !text.trim().is_empty(), "must be non-empty if specified")),
    ("one_line", |text| error_unless(!text.trim().contains(['\n', '\r']), "must not contain line breaks")),
    ("simple_path", |text| error_unless(text.starts_with('.'), "must be a simple json path starting with .")),
    ("trimmed", |text| error_unless(text.trim() == text, "must not have leading or trailing whitespace")),
    ("unpadded", |text| error_unless(text.trim() == text, "must not be padded with whitespace")),
    ("absolute", |text| error_unless(text.starts_with('/'), "must be an absolute path")),
    ("backsteps", check_no_backsteps),
    ("relative", check_relative_path),
    ("inner", check_volume_path),
    ("slashless", |text| error_unless(!text.contains('/'), "must not contain '/'")),
    ("canonical_ip", super::ip_address::canonical_ip_errors),
    ("stored_version", super::storage::storage_version_name),
    ("condition_reason", super::metadata::condition_reason),
    ("extended_resource", |text| {
        error_unless(resource_name::is_extended_resource(text), "must be a valid extended resource name")
    }),
];

/// Returns a format by its name in the tables.
pub(super) fn find_format(name: &str) -> Option<NameRule> {
    NAME_FORMATS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

/// The formats' names in the tables.
#[cfg(test)]
pub(super) fn format_words() -> impl Iterator<Item = &'static str> {
    NAME_FORMATS.iter().map(|(name, _)| *name)
}
