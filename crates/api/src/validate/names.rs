//! The forms of names: DNS labels and subdomains, label keys and values, path segments.

/// The sentence for a bad DNS subdomain.
pub const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// The sentence for a bad DNS label.
pub const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// The sentence for a bad RFC 1035 label.
pub const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn is_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// What is wrong with `text` as a DNS subdomain (most names).
pub fn subdomain(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push(too_long(253));
    }
    if !text.split('.').all(is_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// What is wrong with `text` as a DNS label (namespaces, containers).
pub fn label(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(too_long(63));
    }
    if !is_label(text) {
        faults.push(LABEL.to_owned());
    }
    faults
}

/// What is wrong with `text` as an RFC 1035 label (services).
pub fn label_1035(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(too_long(63));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

/// What is wrong with `text` as a segment of a path (RBAC names).
pub fn path_segment(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text == "." || text == ".." {
        faults.push(format!("may not be '{text}'"));
    }
    for character in ['/', '%'] {
        if text.contains(character) {
            faults.push(format!("may not contain '{character}'"));
        }
    }
    faults
}

/// What is wrong with `text` as a key of labels, annotations and taints.
pub fn qualified(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}"))),
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", too_long(63)));
    }
    if !is_value(name) || name.is_empty() {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// What is wrong with `text` as the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(too_long(63));
    }
    if !is_value(text) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

fn is_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
