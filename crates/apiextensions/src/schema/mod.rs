//! The structural schema of one version, parsed once into a compact tree that pruning, defaulting, validation,
//! server-side apply and CEL rules share.
//!
//! Descriptions are dropped; OpenAPI documents are built from the stored CRD.

mod parse;
mod structure;

use std::sync::{Arc, LazyLock, OnceLock};

use api::Value;
pub use parse::parse;
use regex::Regex;

use crate::rules::Rules;

/// A node of a structural schema.
#[derive(Debug, Default)]
pub struct Node {
    /// `type`.
    pub kind: Kind,
    /// `nullable`: whether `null` is allowed.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`: integers and strings are allowed.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: unknown fields are not pruned.
    pub preserve: bool,
    /// `x-kubernetes-embedded-resource`: the value has `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// Whether this is the root of the schema.
    pub root: bool,
    /// Whether the node is not in the CRD but implied by type and object metadata.
    pub implied: bool,
    /// `x-kubernetes-map-type: atomic`: server-side apply replaces the object as a whole.
    pub atomic: bool,
    /// `x-kubernetes-list-type`.
    pub list: ListKind,
    /// `properties`, sorted by name.
    pub properties: Box<[(Box<str>, Arc<Node>)]>,
    /// `items`.
    pub items: Option<Arc<Node>>,
    /// `additionalProperties`.
    pub others: Others,
    /// `default`.
    pub default: Option<Box<Value>>,
    /// Value validations.
    pub bounds: Option<Box<Bounds>>,
    /// `x-kubernetes-validations`.
    pub rules: Rules,
    /// Whether this node or a descendant has CEL rules.
    pub ruled: bool,
}

/// The type of a schema node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// Returns the type's name in JSON schema.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
        }
    }

    fn of(name: &str) -> Self {
        let all = [Kind::Object, Kind::Array, Kind::String, Kind::Integer, Kind::Number, Kind::Boolean];
        all.into_iter().find(|kind| kind.name() == name).unwrap_or_default()
    }
}

/// The list type (`x-kubernetes-list-type`).
#[derive(Debug, Default)]
pub enum ListKind {
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
pub enum Others {
    /// Absent or `false`.
    #[default]
    None,
    /// `true`: any value; unknown fields below it are pruned.
    Any,
    /// A schema for all additional properties.
    Node(Arc<Node>),
}

/// Value validations: constraints beyond the type.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are those of OpenAPI")]
pub struct Bounds {
    pub format: Box<str>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Box<Pattern>>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Box<[Box<str>]>,
    pub one_of_values: Box<[Value]>,
    pub all_of: Box<[Arc<Node>]>,
    pub any_of: Box<[Arc<Node>]>,
    pub one_of: Box<[Arc<Node>]>,
    pub not: Option<Arc<Node>>,
}

/// A regular expression, compiled on first use.
#[derive(Debug)]
pub struct Pattern {
    /// The expression's source.
    pub text: Box<str>,
    regex: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), regex: OnceLock::new() }
    }

    /// Returns the compiled expression, or its compile error.
    pub fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get_or_init(|| formats::pattern::compile(&self.text)).as_ref().map_err(|error| error.as_str())
    }
}

/// Type and object metadata fields, which every object has.
pub const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Node {
    /// Returns the schema of a property.
    pub fn property(&self, name: &str) -> Option<&Arc<Node>> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// Returns the schema at a key: the property's, or that of `additionalProperties`.
    pub fn at(&self, name: &str) -> Option<&Arc<Node>> {
        self.property(name).or(match &self.others {
            Others::Node(node) => Some(node),
            Others::None | Others::Any => None,
        })
    }

    /// Whether values have `apiVersion`, `kind` and `metadata`.
    pub fn is_resource(&self) -> bool {
        self.root || self.embedded
    }

    /// Returns the value validations; empty ones if there are none.
    pub fn bounds(&self) -> &Bounds {
        static NONE: LazyLock<Bounds> = LazyLock::new(Bounds::default);
        self.bounds.as_deref().unwrap_or(&NONE)
    }
}
