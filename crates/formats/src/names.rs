//! Validation of names: DNS labels and subdomains, label keys and values, path segments, ports, keys, variables.
//!
//! Each function returns upstream's error messages for a text; an empty list means that it is valid.

use std::borrow::Cow;

/// A name validation function; returns the error messages.
pub type NameRule = fn(&str) -> Vec<String>;

/// Error message for an invalid DNS subdomain.
pub const DNS1123_SUBDOMAIN_ERROR: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// Error message for an invalid DNS label.
pub const DNS1123_LABEL_ERROR: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Error message for an invalid RFC 1035 label.
pub const DNS1035_LABEL_ERROR: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const UNDERSCORES: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
    of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used \
    for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const VARIABLE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
    validation is '[-A-Za-z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
    used for validation is '[0-9]+%')";
const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
    alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
    '[A-Za-z_][A-Za-z0-9_]*')";

/// Error message for a text that exceeds its maximum length.
pub fn max_length_error(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Error message of declarative validation for a text that exceeds its maximum length.
fn max_bytes_error(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Rewords length errors as upstream's declarative validation does.
pub fn with_byte_lengths(faults: Vec<String>, max: usize) -> Vec<String> {
    let reword = |fault: String| if fault == max_length_error(max) { max_bytes_error(max) } else { fault };
    faults.into_iter().map(reword).collect()
}

/// Validates a case-insensitive DNS subdomain, with the messages of upstream's declarative validation.
pub fn check_long_name_caseless(text: &str) -> Vec<String> {
    const CASELESS: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end \
        with an alphanumeric character (e.g. 'Example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let reword = |fault: String| if fault == DNS1123_SUBDOMAIN_ERROR { CASELESS.to_owned() } else { fault };
    with_byte_lengths(check_caseless_subdomain(text), 253).into_iter().map(reword).collect()
}

/// Error message for a number outside a range.
pub fn inclusive_range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn check_name(text: &str, max: usize, right: bool, message: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > max {
        faults.push(max_length_error(max));
    }
    if !right {
        faults.push(message.to_owned());
    }
    faults
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Validates a DNS subdomain (most object names).
pub fn check_dns_subdomain(text: &str) -> Vec<String> {
    check_name(text, 253, is_subdomain(text), DNS1123_SUBDOMAIN_ERROR)
}

/// Validates a case-insensitive DNS subdomain.
pub fn check_caseless_subdomain(text: &str) -> Vec<String> {
    check_dns_subdomain(&text.to_lowercase())
}

/// Validates a prefix of a DNS subdomain (`generateName`).
pub fn check_subdomain_prefix(text: &str) -> Vec<String> {
    check_dns_subdomain(&mask_trailing_dash(text))
}

/// Replaces a trailing dash of a name prefix by a letter, because a suffix will follow it.
pub fn mask_trailing_dash(text: &str) -> Cow<'_, str> {
    match text.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => Cow::Owned(format!("{rest}a")),
        None => Cow::Borrowed(text),
    }
}

/// Validates a DNS subdomain that may contain underscores (search domains).
pub fn check_underscore_subdomain(text: &str) -> Vec<String> {
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        edge(label.chars().next()) && edge(label.chars().last()) && label.chars().all(inner)
    };
    check_name(text, 253, text.split('.').all(label), UNDERSCORES)
}

/// Validates a DNS subdomain that begins with `*.`.
pub fn check_wildcard_subdomain(text: &str) -> Vec<String> {
    check_name(text, 253, text.strip_prefix("*.").is_some_and(is_subdomain), WILDCARD)
}

/// Validates a DNS label (namespaces, containers).
pub fn check_dns_label(text: &str) -> Vec<String> {
    let message = if !is_label(text) && is_subdomain(text) { "must not contain dots" } else { DNS1123_LABEL_ERROR };
    check_name(text, 63, is_label(text), message)
}

/// Validates an RFC 1035 label (custom resource names).
pub fn check_1035_label(text: &str) -> Vec<String> {
    check_name(text, 63, is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase()), DNS1035_LABEL_ERROR)
}

/// Validates a path segment (RBAC names).
pub fn check_path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let characters = ['/', '%'].into_iter().filter(|character| text.contains(*character));
    characters.map(|character| format!("may not contain '{character}'")).collect()
}

/// Validates a qualified name: a key of labels, annotations and taints.
pub fn check_qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            let example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {example}")];
        }
        Some(("", name)) => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let mut wrong = check_name(prefix, usize::MAX, is_subdomain(prefix), DNS1123_SUBDOMAIN_ERROR);
            if prefix.len() > 253 {
                wrong.insert(0, max_bytes_error(253));
            }
            faults.extend(wrong.into_iter().map(|fault| format!("prefix part {fault}")));
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", max_bytes_error(63)));
    }
    if !is_label_value(name) || name.is_empty() {
        faults.push(format!("name part {QUALIFIED}"));
    }
    faults
}

/// Validates a label value.
pub fn check_label_value(text: &str) -> Vec<String> {
    let mut faults = check_name(text, usize::MAX, is_label_value(text), LABEL_VALUE);
    if text.len() > 63 {
        faults.insert(0, max_bytes_error(63));
    }
    faults
}

fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<&u8>| c.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// Validates a key of a ConfigMap or Secret.
pub fn check_config_key(text: &str) -> Vec<String> {
    let right = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let mut faults = check_name(text, 253, right, CONFIG_KEY);
    match text {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// Validates an environment variable name.
pub fn check_env_var_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.is_empty() {
        faults.push("environment variable name must be non-empty".to_owned());
    }
    if text.bytes().any(|c| !(b' '..=b'~').contains(&c) || c == b'=') {
        faults.push(VARIABLE.to_owned());
    }
    faults
}

/// Validates a port name.
pub fn check_port_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 15 {
        faults.push(max_length_error(15));
    }
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// Validates an HTTP header name.
pub fn check_http_header_name(text: &str) -> Vec<String> {
    check_name(
        text,
        usize::MAX,
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        HEADER,
    )
}

/// Validates a percentage.
pub fn check_percent(text: &str) -> Vec<String> {
    let number = text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()));
    check_name(text, usize::MAX, number, PERCENT)
}

/// Validates a C identifier.
pub fn check_c_identifier(text: &str) -> Vec<String> {
    let start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    check_name(text, usize::MAX, start && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), C_IDENTIFIER)
}

/// CEL's reserved words, which are invalid as names of variables and functions.
pub const CEL_RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a word is reserved in CEL.
pub fn is_cel_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "null") || CEL_RESERVED.contains(&word)
}

/// Validates a semantic version.
pub fn check_semver(text: &str) -> Vec<String> {
    error_unless(is_semver(text), "must be a string compatible with semver.org spec 2.0.0")
}

/// Whether the text is three numbers with an optional pre-release and build.
fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && build.is_none_or(|build| build.split('.').all(word))
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| word(part) && (number(part) || !part.bytes().all(|c| c.is_ascii_digit())))
        })
}

/// Returns `fault` if the condition is false.
pub fn error_unless(right: bool, fault: &str) -> Vec<String> {
    if right { Vec::new() } else { vec![fault.to_owned()] }
}

/// Validates a path without `..` elements.
pub fn check_no_backsteps(text: &str) -> Vec<String> {
    error_unless(text.split('/').all(|part| part != ".."), "must not contain '..'")
}

/// Validates a relative path inside a volume.
pub fn check_relative_path(text: &str) -> Vec<String> {
    let mut faults = error_unless(!text.starts_with('/'), "must be a relative path");
    faults.extend(check_no_backsteps(text));
    faults
}

/// Validates a relative path inside a volume whose first element is not reserved for the kubelet.
pub fn check_volume_path(text: &str) -> Vec<String> {
    let mut faults = check_relative_path(text);
    faults.extend(error_unless(!text.starts_with("..") || text.starts_with("../"), "must not start with '..'"));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_like_upstream() {
        let cases: &[(NameRule, &str, bool)] = &[
            (check_dns_subdomain, "a.b-c.d", true),
            (check_dns_subdomain, "a..b", false),
            (check_dns_label, "a-1", true),
            (check_dns_label, "a.b", false),
            (check_1035_label, "1a", false),
            (check_qualified_name, "example.com/Name_1", true),
            (check_qualified_name, "a/b/c", false),
            (check_qualified_name, "/c", false),
            (check_config_key, "a_b.C-d", true),
            (check_config_key, "..x", false),
            (check_env_var_name, "any thing", true),
            (check_env_var_name, "a=b", false),
            (check_port_name, "http-2", true),
            (check_port_name, "80", false),
            (check_percent, "25%", true),
            (check_percent, "%", false),
            (check_wildcard_subdomain, "*.a.b", true),
            (check_underscore_subdomain, "_tcp.a_b.c", true),
            (check_path_segment, "a%", false),
        ];
        for (form, text, right) in cases {
            assert_eq!(form(text).is_empty(), *right, "{text}");
        }
        assert_eq!(check_dns_label("a.b"), ["must not contain dots"]);
        assert!(check_qualified_name("a/b/c")[0].starts_with("a valid label key must consist"));
    }
}
