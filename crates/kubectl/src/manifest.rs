//! Manifests: YAML or JSON streams, decoded into objects with upstream's errors.

use api::{Value, decode::DecodeError, json::go_quote};

use crate::{
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
};

/// The value of `--validate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Unknown and duplicate fields are errors.
    Strict,
    /// They are warnings.
    Warn,
    /// They are dropped.
    #[default]
    Ignore,
}

impl Validation {
    /// Reads `--validate`.
    pub fn from_flags(flags: &FlagSet) -> CommandResult<Self> {
        let value = flags.string("validate");
        match value.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" | "strict" => Ok(Validation::Strict),
            "0" | "f" | "F" | "FALSE" | "false" | "False" | "ignore" => Ok(Validation::Ignore),
            "warn" => Ok(Validation::Warn),
            other => Err(CommandError::new(format!(
                "invalid - validate option {}; must be one of: strict (or true), warn, ignore (or false)",
                go_quote(other)
            ))),
        }
    }

    /// The query parameter.
    pub fn parameter(self) -> &'static str {
        match self {
            Validation::Strict => "Strict",
            Validation::Warn => "Warn",
            Validation::Ignore => "Ignore",
        }
    }
}

/// Splits a stream into documents: YAML at `---`, JSON after each value.
pub fn split_documents(bytes: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    if text.trim_start().starts_with('{') && !text.contains("\n---") {
        let mut values = Vec::new();
        let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
        let mut start = 0;
        while let Some(value) = stream.next() {
            // Some YAML begins with a brace too.
            if value.is_err() {
                return vec![bytes.to_vec()];
            }
            values.push(bytes[start..stream.byte_offset()].to_vec());
            start = stream.byte_offset();
        }
        return values;
    }
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.starts_with("---") && line[3..].trim_start().is_empty() | line[3..].starts_with([' ', '\t', '\n', '\r'])
        {
            documents.push(String::new());
            continue;
        }
        if let Some(document) = documents.last_mut() {
            document.push_str(line);
        }
    }
    documents.into_iter().map(String::into_bytes).collect()
}

/// Decodes one document; `None` if it is empty.
pub fn decode_manifest(bytes: &[u8], source: &str) -> CommandResult<Option<Value>> {
    decode_parsed(api::yaml::parse(bytes), bytes, source)
}

/// Decodes the documents of a stream as kustomize does, where words such as `y` are strings.
pub fn decode_yaml12_documents(bytes: &[u8], source: &str) -> CommandResult<Vec<Value>> {
    let decode = |document: Vec<u8>| decode_parsed(api::yaml::parse_yaml12(&document), &document, source).transpose();
    split_documents(bytes).into_iter().filter_map(decode).collect()
}

fn decode_parsed(
    parsed: Result<api::yaml::YamlDocument, api::yaml::YamlError>,
    bytes: &[u8],
    source: &str,
) -> CommandResult<Option<Value>> {
    let wrong = |error: api::yaml::YamlError| {
        if let Err(error) = json_error(bytes) {
            return error.with_parse_prefix(source);
        }
        CommandError::new(format!("error parsing {source}: error converting YAML to JSON: {error}"))
    };
    match parsed.map_err(wrong)?.value {
        Value::Null => Ok(None),
        value => Ok(Some(value)),
    }
}

/// The error of a document that is clearly meant to be JSON.
fn json_error(bytes: &[u8]) -> CommandResult {
    let text = String::from_utf8_lossy(bytes);
    if !text.trim_start().starts_with('{') {
        return Ok(());
    }
    match api::json::parse(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.to_string() {
            text if text == "unexpected end of JSON input" => CommandError::new("unexpected EOF"),
            text => CommandError::new(format!("json: {text}")),
        }),
    }
}

impl CommandError {
    fn with_parse_prefix(self, source: &str) -> Self {
        CommandError::new(format!("error parsing {source}: {self}"))
    }
}

/// Checks that a document is an object with a kind, as schema validation does first.
pub fn check_object_kind(object: &Value, source: &str) -> CommandResult {
    let invalid = |what: &str| {
        CommandError::new(format!(
            "error validating {}: error validating data: {what}; if you choose to ignore these errors, turn \
             validation off with --validate=false",
            go_quote(source)
        ))
    };
    if !object.is_object() {
        return Err(invalid("invalid object to validate"));
    }
    let missing = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Some(format!("{field} not set")),
        Some(Value::String(text)) if text.is_empty() => Some(format!("{field} not set")),
        Some(Value::String(_)) => None,
        Some(_) => Some(format!("{field} isn't string type")),
    };
    let faults: Vec<String> = ["apiVersion", "kind"].into_iter().filter_map(missing).collect();
    match faults.as_slice() {
        [] => Ok(()),
        [one] => Err(invalid(one)),
        several => Err(invalid(&format!("[{}]", several.join(", ")))),
    }
}

/// Checks what decoding without a schema needs: an object, its kind, and metadata of the right types.
pub fn check_decodable(object: &Value, source: &str) -> CommandResult {
    let wrong = |what: String| CommandError::new(format!("unable to decode {}: {what}", go_quote(source)));
    if !object.is_object() {
        let found = api::json::value_type_name(object);
        return Err(wrong(format!(
            "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    if object.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
        return Err(wrong(format!("Object 'Kind' is missing in '{object}'")));
    }
    let mut copy = object.clone();
    api::decode::canonicalize_metadata(&mut copy).map_err(|error| match error {
        DecodeError::TypeMismatch { found, owner, path, wanted } => {
            wrong(DecodeError::TypeMismatch { found, owner, path: format!("metadata.{path}"), wanted }.to_string())
        }
        error => wrong(error.to_string()),
    })?;
    Ok(())
}

/// Decodes all documents of a stream.
pub fn decode_documents(bytes: &[u8], source: &str) -> CommandResult<Vec<Value>> {
    let mut objects = Vec::new();
    for document in split_documents(bytes) {
        objects.extend(decode_manifest(&document, source)?);
    }
    Ok(objects)
}

/// The error of a document that is no object.
pub fn type_meta_error(value: &Value) -> CommandError {
    let found = api::json::value_type_name(value);
    CommandError::new(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type \
         struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
         \"json:\\\"kind,omitempty\\\"\" }}"
    ))
}

/// The error of a kind that is not in the schema.
pub fn unregistered_kind(kind: &str, api_version: &str) -> CommandError {
    CommandError::new(format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        api::json::go_quote(kind),
        api::json::go_quote(api_version)
    ))
}
