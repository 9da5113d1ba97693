//! YAML as upstream decodes and encodes it: YAML 1.1 scalars, string keys, only the first document.
//!
//! [`parse`] works on events, so that aliases, depth and size are bounded during parsing; [`write_document`] matches the output
//! of upstream's library. Unlike upstream, [`parse`] does not treat the line breaks that only YAML 1.1 has (U+0085,
//! U+2028, U+2029) as line breaks.

mod decoder;
mod emitter;
mod key_order;
mod resolve;
mod syntax_error;

use crate::{Value, budget::OverBudget, json};

/// A YAML decoding error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Invalid syntax.
    #[error("yaml: {}{message}", syntax_error::line_prefix(*line))]
    Syntax {
        /// Line number as Go's library counts; 0 if it is not reported.
        line: usize,
        /// The message of Go's library.
        message: String,
    },
    /// Invalid UTF-8.
    #[error("yaml: invalid {0} UTF-8 octet")]
    Utf8(&'static str),
    /// A number that JSON does not support.
    #[error("json: unsupported value: {0}")]
    Number(&'static str),
    /// A value that JSON cannot represent, or an invalid reference or tag.
    #[error("yaml: {0}")]
    Value(String),
    /// The nesting depth exceeds its limit.
    #[error("yaml: exceeded max depth of {}", json::MAX_DEPTH)]
    Depth,
    /// Alias expansion exceeds its limit.
    #[error("yaml: document contains excessive aliasing")]
    Aliasing,
    /// The size exceeds its limit.
    #[error("Request entity too large: limit is {}", json::MAX_SIZE)]
    Size,
    /// The memory exceeds its limit.
    #[error(transparent)]
    Memory(#[from] OverBudget),
}

/// A decoded document.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlDocument {
    /// The value of the first document; null if there is none.
    pub value: Value,
    /// Messages about duplicate keys: `line 3: key "a" already set in map`.
    pub duplicates: Vec<String>,
}

impl YamlDocument {
    /// Returns the strict decoding error for duplicate keys.
    pub fn duplicate_key_error(&self) -> Option<String> {
        (!self.duplicates.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", self.duplicates.join("\n  ")))
    }
}

/// Decodes the first document.
pub fn parse(bytes: &[u8]) -> Result<YamlDocument, YamlError> {
    parse_with(bytes, BooleanWords::Yaml11)
}

/// Decodes the first document as programs do whose library keeps to YAML 1.2 for booleans: `y` and `no` are strings.
pub fn parse_yaml12(bytes: &[u8]) -> Result<YamlDocument, YamlError> {
    parse_with(bytes, BooleanWords::Yaml12)
}

fn parse_with(bytes: &[u8], booleans: BooleanWords) -> Result<YamlDocument, YamlError> {
    if bytes.len() > json::MAX_SIZE {
        return Err(YamlError::Size);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let first = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        YamlError::Utf8(if (0xc0..0xf8).contains(&first) { "trailing" } else { "leading" })
    })?;
    decoder::decode_document(text, booleans)
}

/// The words that are booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BooleanWords {
    /// `true`, `false`, `yes`, `no`, `on`, `off`, `y` and `n`.
    Yaml11,
    /// `true` and `false`.
    Yaml12,
}

/// Encodes an object with sorted keys, and the line breaks and quotes of upstream's library.
pub fn write_document(value: &Value) -> String {
    emitter::emit_document(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_true_and_false_are_booleans_of_yaml_1_2() {
        let parsed = parse_yaml12(b"{y: n, a: [yes, Off, true, False]}").unwrap();
        assert_eq!(parsed.value, json!({"y": "n", "a": ["yes", "Off", true, false]}));
    }

    fn parse_value(text: &str) -> Value {
        parse(text.as_bytes()).unwrap().value
    }

    #[test]
    fn scalars_are_resolved_by_yaml_1_1() {
        let text = "a: [yes, No, on, OFF, y, n, ~, null, '']\nb: [1, 0x1F, 0o17, 017, 08, 1_000, -0b11, +5]\n\
            c: [1.5, .5, 1e3, 1., '1', \"yes\", 2001-01-01, 1:30, 1e999, .x, 0x, !!str 1, !foo x]\n? true\n: t\n1: one\n1.5: f\n";
        assert_eq!(
            parse_value(text),
            json!({"a": [true, false, true, false, true, false, null, null, ""], "b": [1, 31, 15, 15, 8, 1000, -3, 5],
                "c": [1.5, 0.5, 1000, 1, "1", "yes", "2001-01-01", "1:30", "1e999", ".x", "0x", "1", "x"],
                "true": "t", "1": "one", "1.5": "f"})
        );
        for wrong in ["{~: 1}", "{[a]: 1}", ".inf", "!!int x", "a: b: c", "[", "*x", "\u{1}"] {
            parse(wrong.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn comments_are_ignored_everywhere() {
        let text = "# first\n---\n# second\na: 1 # one\n# between\nb: # before\n  # more\n  - x # item\n  # last\nc: [1, # in\n 2]\n# end\n";
        assert_eq!(parse_value(text), json!({"a": 1, "b": ["x"], "c": [1, 2]}));
        assert_eq!(parse_value("# nothing\n"), Value::Null);
        assert_eq!(parse_value("a: '#no' # yes\nb: |\n  # text\n"), json!({"a": "#no", "b": "# text\n"}));
    }

    #[test]
    fn anchors_and_merges_are_expanded() {
        let text = "base: &b {x: 1, w: 2}\none:\n  <<: *b\n  w: 3\ntwo: {<<: [*b, {z: 4}]}\nsame: *b\n";
        let base = json!({"x": 1, "w": 2});
        assert_eq!(
            parse_value(text),
            json!({"base": base, "one": {"x": 1, "w": 3}, "two": {"x": 1, "w": 2, "z": 4}, "same": base})
        );
        assert_eq!(parse_value("a\n---\nb: [\n"), "a", "later documents do not count");
        assert_eq!(parse_value(""), Value::Null);
    }

    #[test]
    fn duplicate_keys_are_reported() {
        let parsed = parse(b"a: 1\nb: 2\na: 3\n").unwrap();
        assert_eq!(parsed.value, json!({"a": 3, "b": 2}));
        assert_eq!(
            parsed.duplicate_key_error().unwrap(),
            "yaml: unmarshal errors:\n  line 3: key \"a\" already set in map"
        );
    }

    #[test]
    fn hostile_documents_are_rejected() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let alias = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![alias; 9].join(", "));
        }
        assert_eq!(parse(bomb.as_bytes()), Err(YamlError::Aliasing));
        parse("[".repeat(100_000).as_bytes()).unwrap_err();
        parse("- ".repeat(100_000).as_bytes()).unwrap_err();
        parse("a: &a [*a]".as_bytes()).unwrap_err();
        assert_eq!(parse(&vec![b'a'; json::MAX_SIZE + 1]), Err(YamlError::Size));
        assert_eq!(parse_value(&"a".repeat(json::MAX_SIZE)).as_str().map(str::len), Some(json::MAX_SIZE));
        let many = format!("[{}]", "{a: 1},".repeat(300_000));
        assert_eq!(parse(many.as_bytes()), Err(YamlError::Memory(OverBudget)));
    }

    #[test]
    fn objects_are_encoded_like_upstream() {
        let long = "word ".repeat(30);
        let object = json!({"b10": 1, "b9": "yes", "a": [], "c": {}, "d": [{"x": [1, [2]], "y": null}, "- z"], "e": "a\nb\n",
            "f": "1", "g": " x", "h": 1.5, "i": 1e21, "j": "a: b", "k": "#", "l": "é\u{7}", "m": long.trim_end(), "n": "a\n\n", "o": ""});
        let want = "a: []\nb9: \"yes\"\nb10: 1\nc: {}\nd:\n- x:\n  - 1\n  - - 2\n  \"y\": null\n- '- z'\ne: |\n  a\n  b\nf: \"1\"\n\
            g: ' x'\nh: 1.5\ni: 1e+21\nj: 'a: b'\nk: '#'\nl: \"é\\a\"\nm: word word word word word word word word word word word word word word word word\n  \
            word word word word word word word word word word word word word word\n\"n\": |+\n  a\n\no: \"\"\n";
        assert_eq!(write_document(&object), want);
        assert_eq!(parse_value(&write_document(&object)), object);
    }
}
