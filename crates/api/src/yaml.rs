//! YAML as objects of a type.

pub use formats::yaml::*;

use crate::{
    Value,
    decode::{self, Mode},
    schema::TypeId,
};

/// Why YAML is no object of a type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is no YAML.
    #[error(transparent)]
    Yaml(#[from] Error),
    /// It does not fit the type.
    #[error(transparent)]
    Decode(#[from] decode::Error),
}

/// Reads YAML as an object of type `ty`; the second part is what a client is warned of.
pub fn read(ty: TypeId, bytes: &[u8], mode: Mode) -> Result<(Value, Vec<String>), ReadError> {
    let parsed = parse(bytes)?;
    let twice = parsed.violation();
    let decoded = decode::canonical(ty, parsed.value)?;
    let unknown = decoded.unknown.iter().map(|path| format!("unknown field {path:?}"));
    let violations: Vec<String> = twice.into_iter().chain(unknown).collect();
    match mode {
        Mode::Strict if !violations.is_empty() => Err(decode::Error::Strict(violations).into()),
        Mode::Warn => Ok((decoded.object, violations)),
        Mode::Strict | Mode::Ignore => Ok((decoded.object, Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn violations_are_told_as_upstream_tells_them() {
        let ty = schema().type_named("core/v1.ConfigMap").unwrap();
        let text = b"metadata: {name: a}\nzz: 1\ndata:\n  a: b\n  a: c\naa: 1\n";
        let want = [
            "yaml: unmarshal errors:\n  line 5: key \"a\" already set in map",
            r#"unknown field "aa""#,
            r#"unknown field "zz""#,
        ];
        assert_eq!(read(ty, text, Mode::Warn).unwrap().1, want);
        assert!(matches!(read(ty, text, Mode::Strict), Err(ReadError::Decode(decode::Error::Strict(_)))));
        assert_eq!(read(ty, text, Mode::Ignore).unwrap().1.len(), 0);
    }
}
