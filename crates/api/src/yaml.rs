//! Decodes YAML manifests into typed objects.

pub use formats::yaml::*;

use crate::{
    Value,
    decode::{self, FieldValidation},
    schema::TypeId,
};

/// A YAML document that cannot be decoded as an object of the type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlDecodeError {
    /// The document is malformed YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The document does not match the type.
    #[error(transparent)]
    Decode(#[from] decode::DecodeError),
}

/// Decodes YAML as an object of type `ty`; returns the object and the warnings for the client.
pub fn decode_yaml(ty: TypeId, bytes: &[u8], mode: FieldValidation) -> Result<(Value, Vec<String>), YamlDecodeError> {
    let parsed = parse(bytes)?;
    let twice = parsed.duplicate_key_error();
    let decoded = decode::canonicalize(ty, parsed.value)?;
    let unknown = decoded.unknown.iter().map(|path| format!("unknown field {path:?}"));
    let violations: Vec<String> = twice.into_iter().chain(unknown).collect();
    match mode {
        FieldValidation::Strict if !violations.is_empty() => {
            Err(decode::DecodeError::StrictViolations(violations).into())
        }
        FieldValidation::Warn => Ok((decoded.object, violations)),
        FieldValidation::Strict | FieldValidation::Ignore => Ok((decoded.object, Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn strict_violations_have_upstreams_wording() {
        let ty = schema().type_named("core/v1.ConfigMap").unwrap();
        let text = b"metadata: {name: a}\nzz: 1\ndata:\n  a: b\n  a: c\naa: 1\n";
        let want = [
            "yaml: unmarshal errors:\n  line 5: key \"a\" already set in map",
            r#"unknown field "aa""#,
            r#"unknown field "zz""#,
        ];
        assert_eq!(decode_yaml(ty, text, FieldValidation::Warn).unwrap().1, want);
        assert!(matches!(
            decode_yaml(ty, text, FieldValidation::Strict),
            Err(YamlDecodeError::Decode(decode::DecodeError::StrictViolations(_)))
        ));
        assert_eq!(decode_yaml(ty, text, FieldValidation::Ignore).unwrap().1.len(), 0);
    }
}
