//! Names of environment variables, as kubectl checks them: stricter than what the server accepts.

const RULE: &str = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and \
                    must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for \
                    validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')";

/// Returns what is wrong with a name.
pub fn check_environment_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(allowed) {
        faults.push(RULE.to_owned());
    }
    match name {
        "." | ".." => faults.push(format!("must not be '{name}'")),
        _ if name.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}
