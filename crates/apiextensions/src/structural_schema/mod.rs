//! The structural schema of one version, parsed once into a compact tree that pruning, defaulting, validation,
//! server-side apply and CEL rules share.
//!
//! Descriptions are dropped; OpenAPI documents are built from the stored CRD.

mod parser;
mod structural_view;
mod validation_rule;

use std::sync::{Arc, LazyLock, OnceLock};

use api::Value;
use formats::ParseError;
pub use parser::parse_schema;
use regex::Regex;
pub use validation_rule::{CompiledRule, RuleCompileError, ValidationRule, ValidationRules};

/// A node of a structural schema.
#[derive(Debug, Default)]
pub struct Structural {
    /// `type`.
    pub kind: JsonType,
    /// `nullable`: whether `null` is allowed.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`: integers and strings are allowed.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: unknown fields are not pruned.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`: the value has `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// Whether this is the root of the schema.
    pub root: bool,
    /// Whether the node is not in the CRD but implied by type and object metadata.
    pub implied: bool,
    /// `x-kubernetes-map-type: atomic`: server-side apply replaces the object as a whole.
    pub atomic: bool,
    /// `x-kubernetes-list-type`.
    pub list_type: ListType,
    /// `properties`, sorted by name.
    pub properties: Box<[(Box<str>, Arc<Structural>)]>,
    /// `items`.
    pub items: Option<Arc<Structural>>,
    /// `additionalProperties`.
    pub additional_properties: AdditionalProperties,
    /// `default`.
    pub default: Option<Box<Value>>,
    /// Value validations.
    pub validation: Option<Box<ValueValidation>>,
    /// `x-kubernetes-validations`.
    pub rules: ValidationRules,
    /// Whether this node or a descendant has CEL rules.
    pub has_rules: bool,
}

/// The type of a schema node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    /// No `type`: any value.
    #[default]
    Any,
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
}

impl JsonType {
    /// Returns the type's name in JSON schema.
    pub fn name(self) -> &'static str {
        match self {
            JsonType::Any => "",
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
        }
    }

    fn from_name(name: &str) -> Self {
        let all = [
            JsonType::Object,
            JsonType::Array,
            JsonType::String,
            JsonType::Integer,
            JsonType::Number,
            JsonType::Boolean,
        ];
        all.into_iter().find(|kind| kind.name() == name).unwrap_or_default()
    }
}

/// The list type (`x-kubernetes-list-type`).
#[derive(Debug, Default)]
pub enum ListType {
    /// The list is replaced as a whole.
    #[default]
    Atomic,
    /// Elements are unique.
    Set,
    /// Elements are objects identified by these keys.
    Map(Box<[String]>),
}

/// The `additionalProperties` of a schema node.
#[derive(Debug, Default)]
pub enum AdditionalProperties {
    /// Absent or `false`.
    #[default]
    None,
    /// `true`: any value; unknown fields below it are pruned.
    Any,
    /// A schema for all additional properties.
    Schema(Arc<Structural>),
}

/// Value validations: constraints beyond the type.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are those of OpenAPI")]
pub struct ValueValidation {
    pub format: Box<str>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Box<LazyPattern>>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Box<[Box<str>]>,
    pub enumeration: Box<[Value]>,
    pub all_of: Box<[Arc<Structural>]>,
    pub any_of: Box<[Arc<Structural>]>,
    pub one_of: Box<[Arc<Structural>]>,
    pub not: Option<Arc<Structural>>,
}

/// A regular expression, compiled on first use.
#[derive(Debug)]
pub struct LazyPattern {
    /// The expression's source.
    pub text: Box<str>,
    regex: OnceLock<Result<Regex, ParseError>>,
}

impl LazyPattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), regex: OnceLock::new() }
    }

    /// Returns the compiled expression, or its compile error.
    pub fn regex(&self) -> Result<&Regex, &str> {
        self.regex
            .get_or_init(|| formats::go_regexp::compile_regexp(&self.text))
            .as_ref()
            .map_err(|error| error.0.as_str())
    }
}

/// Type and object metadata fields, which every object has.
pub const OBJECT_META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Structural {
    /// Returns the schema of a property.
    pub fn property(&self, name: &str) -> Option<&Arc<Structural>> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// Returns the schema at a key: the property's, or that of `additionalProperties`.
    pub fn schema_at(&self, name: &str) -> Option<&Arc<Structural>> {
        self.property(name).or(match &self.additional_properties {
            AdditionalProperties::Schema(node) => Some(node),
            AdditionalProperties::None | AdditionalProperties::Any => None,
        })
    }

    /// Whether values have `apiVersion`, `kind` and `metadata`.
    pub fn is_resource(&self) -> bool {
        self.root || self.embedded
    }

    /// Returns the value validations; empty ones if there are none.
    pub fn value_validation(&self) -> &ValueValidation {
        static NONE: LazyLock<ValueValidation> = LazyLock::new(ValueValidation::default);
        self.validation.as_deref().unwrap_or(&NONE)
    }
}
