//! The types of a kubeconfig's fields, checked as Go's decoder checks them.

use api::{Value, json::value_type_name};

use crate::errors::{CommandError, CommandResult};

/// The type of a field.
enum FieldKind {
    Text,
    Bool,
    /// Base64.
    Bytes,
    TextList,
    TextMap,
    ListMap,
    /// A named struct; the second name is what it is called as a field's type.
    Struct(&'static str, &'static str),
    /// A list of named structs.
    StructList(&'static str),
    Any,
}

use FieldKind::{Any, Bool, Bytes, ListMap, Struct, StructList, Text, TextList, TextMap};

const EXTENSIONS: (&str, FieldKind) = ("extensions", StructList("NamedExtension"));

/// The fields of a struct.
fn fields_of(name: &str) -> &'static [(&'static str, FieldKind)] {
    match name {
        "Config" => &[
            ("kind", Text),
            ("apiVersion", Text),
            ("preferences", Struct("Preferences", "v1.Preferences")),
            ("clusters", StructList("NamedCluster")),
            ("users", StructList("NamedAuthInfo")),
            ("contexts", StructList("NamedContext")),
            ("current-context", Text),
            EXTENSIONS,
        ],
        "Preferences" => &[("colors", Bool), EXTENSIONS],
        "NamedCluster" => &[("name", Text), ("cluster", Struct("Cluster", "v1.Cluster"))],
        "NamedAuthInfo" => &[("name", Text), ("user", Struct("AuthInfo", "v1.AuthInfo"))],
        "NamedContext" => &[("name", Text), ("context", Struct("Context", "v1.Context"))],
        "NamedExtension" => &[("name", Text), ("extension", Any)],
        "Cluster" => &[
            ("server", Text),
            ("tls-server-name", Text),
            ("insecure-skip-tls-verify", Bool),
            ("certificate-authority", Text),
            ("certificate-authority-data", Bytes),
            ("proxy-url", Text),
            ("disable-compression", Bool),
            EXTENSIONS,
        ],
        "Context" => &[("cluster", Text), ("user", Text), ("namespace", Text), EXTENSIONS],
        "AuthInfo" => &[
            ("client-certificate", Text),
            ("client-certificate-data", Bytes),
            ("client-key", Text),
            ("client-key-data", Bytes),
            ("token", Text),
            ("tokenFile", Text),
            ("as", Text),
            ("as-uid", Text),
            ("as-groups", TextList),
            ("as-user-extra", ListMap),
            ("username", Text),
            ("password", Text),
            ("auth-provider", Struct("AuthProviderConfig", "v1.AuthProviderConfig")),
            ("exec", Struct("ExecConfig", "v1.ExecConfig")),
            EXTENSIONS,
        ],
        "AuthProviderConfig" => &[("name", Text), ("config", TextMap)],
        "ExecConfig" => &[
            ("command", Text),
            ("args", TextList),
            ("env", StructList("ExecEnvVar")),
            ("apiVersion", Text),
            ("installHint", Text),
            ("provideClusterInfo", Bool),
            ("interactiveMode", Text),
        ],
        "ExecEnvVar" => &[("name", Text), ("value", Text)],
        _ => &[],
    }
}

/// Checks the types of a whole configuration.
pub fn check_types(root: &Value) -> CommandResult {
    check_struct("Config", "", root)
}

fn check_struct(name: &str, path: &str, value: &Value) -> CommandResult {
    for (field, kind) in fields_of(name) {
        let Some(found) = value.get(field).filter(|found| !found.is_null()) else { continue };
        let path = if path.is_empty() { (*field).to_owned() } else { format!("{path}.{field}") };
        check_field(name, &path, kind, found)?;
    }
    Ok(())
}

fn check_field(owner: &str, path: &str, kind: &FieldKind, value: &Value) -> CommandResult {
    let wrong = |value: &Value, wanted: &str| {
        let found = value_type_name(value);
        Err(CommandError::new(format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}"
        )))
    };
    let texts = |values: Vec<&Value>| match values.into_iter().find(|value| !value.is_string()) {
        Some(other) => wrong(other, "string"),
        None => Ok(()),
    };
    match (kind, value) {
        (Any, _) | (Text, Value::String(_)) | (Bool, Value::Bool(_)) => Ok(()),
        (Bytes, Value::String(text)) => match corrupt_base64(text) {
            Some(at) => Err(CommandError::new(format!("illegal base64 data at input byte {at}"))),
            None => Ok(()),
        },
        (TextList, Value::Array(items)) => texts(items.iter().collect()),
        (TextMap, Value::Object(map)) => texts(map.values().collect()),
        (ListMap, Value::Object(map)) => match map.values().find(|value| !value.is_array()) {
            Some(other) => wrong(other, "[]string"),
            None => texts(map.values().flat_map(|value| value.as_array().into_iter().flatten()).collect()),
        },
        (Struct(name, _), Value::Object(_)) => check_struct(name, path, value),
        (StructList(name), Value::Array(items)) => {
            for item in items.iter().filter(|item| !item.is_null()) {
                if !item.is_object() {
                    return wrong(item, &format!("v1.{name}"));
                }
                check_struct(name, path, item)?;
            }
            Ok(())
        }
        (Text, _) => wrong(value, "string"),
        (Bool, _) => wrong(value, "bool"),
        (Bytes, _) => wrong(value, "[]uint8"),
        (TextList, _) => wrong(value, "[]string"),
        (TextMap, _) => wrong(value, "map[string]string"),
        (ListMap, _) => wrong(value, "map[string][]string"),
        (Struct(_, shown), _) => wrong(value, shown),
        (StructList(name), _) => wrong(value, &format!("[]v1.{name}")),
    }
}

/// The place where Go's decoder gives up on base64; `None` if the text is valid.
pub fn corrupt_base64(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let mut count = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' | b'\n' => continue,
            b'=' => {
                let rest: Vec<u8> = bytes[at..].iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
                return match (count % 4, rest.as_slice()) {
                    (2, b"==") | (3, b"=") => None,
                    (2, [_]) => Some(bytes.len()),
                    (2, [_, other, ..]) if *other != b'=' => Some(at + 1),
                    (2, _) => Some(at + 2),
                    (3, _) => Some(at + 1),
                    _ => Some(at),
                };
            }
            byte if is_digit(*byte) => count += 1,
            _ => return Some(at),
        }
    }
    (count % 4 != 0).then(|| bytes.len() - count % 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_types_name_the_field() {
        let root = json!({"users": [{"name": "a", "user": {"password": true}}]});
        let error = check_types(&root).expect_err("a wrong type").to_string();
        assert_eq!(
            error,
            "json: cannot unmarshal bool into Go struct field AuthInfo.users.user.password of type string"
        );
        assert!(check_types(&json!({"clusters": [{"cluster": {"server": "x"}}], "other": 1})).is_ok());
    }

    #[test]
    fn corrupt_base64_is_placed() {
        assert_eq!(corrupt_base64("q u"), Some(1));
        assert_eq!(corrupt_base64("QUJD"), None);
        assert_eq!(corrupt_base64("QUI="), None);
        assert_eq!(corrupt_base64("QUJDR"), Some(4));
    }
}
