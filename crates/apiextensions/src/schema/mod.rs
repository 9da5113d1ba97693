//! The structural schema of one version, parsed once into a tree that is small and shared by everything that walks objects:
//! pruning, defaults, validation, apply and rules.
//!
//! Descriptions are not kept: documents about the schema are made of the stored definition.

mod parse;
mod structure;

use std::sync::{Arc, LazyLock, OnceLock};

use api::Value;
pub use parse::parse;
use regex::Regex;

use crate::rules::Rules;

/// A part of a schema.
#[derive(Debug, Default)]
pub struct Node {
    /// What values are.
    pub kind: Kind,
    /// `null` is allowed.
    pub nullable: bool,
    /// Whole numbers and text are allowed, whatever the type says.
    pub int_or_string: bool,
    /// What the schema does not know is kept.
    pub preserve: bool,
    /// It is an object of some resource.
    pub embedded: bool,
    /// It is the object itself.
    pub root: bool,
    /// Nobody wrote it: it is there because every object has it.
    pub implied: bool,
    /// Apply treats the object as a whole.
    pub atomic: bool,
    /// How lists are merged.
    pub list: ListKind,
    /// Sorted by name.
    pub properties: Box<[(Box<str>, Arc<Node>)]>,
    /// What elements of a list are.
    pub items: Option<Arc<Node>>,
    /// What values are that no property is for.
    pub others: Others,
    /// What it is where it is left out.
    pub default: Option<Box<Value>>,
    /// What is allowed, beyond the type.
    pub bounds: Option<Box<Bounds>>,
    /// What must hold.
    pub rules: Rules,
    /// A rule is here or below.
    pub ruled: bool,
}

/// What values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    #[default]
    Any,
    /// An object.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

impl Kind {
    /// As schemas write it.
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

/// How lists are merged.
#[derive(Debug, Default)]
pub enum ListKind {
    /// As a whole.
    #[default]
    Atomic,
    /// Every element is there once.
    Set,
    /// Elements are told apart by these fields.
    Map(Box<[String]>),
}

/// What values are that no property is for.
#[derive(Debug, Default)]
pub enum Others {
    /// There are none.
    #[default]
    None,
    /// Anything, of which nothing is kept that the schema does not know.
    Any,
    /// All alike.
    Node(Arc<Node>),
}

/// What is allowed, beyond the type.
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

/// A regular expression, compiled when it is first used.
#[derive(Debug)]
pub struct Pattern {
    /// As it was written.
    pub text: Box<str>,
    regex: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), regex: OnceLock::new() }
    }

    /// The expression, or what is wrong with it.
    pub fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get_or_init(|| formats::pattern::compile(&self.text)).as_ref().map_err(|error| error.as_str())
    }
}

/// What every object has besides its own fields.
pub const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Node {
    /// A property by name.
    pub fn property(&self, name: &str) -> Option<&Arc<Node>> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// What is at a key: a property, or what all others are.
    pub fn at(&self, name: &str) -> Option<&Arc<Node>> {
        self.property(name).or(match &self.others {
            Others::Node(node) => Some(node),
            Others::None | Others::Any => None,
        })
    }

    /// Whether values say their version and kind.
    pub fn is_resource(&self) -> bool {
        self.root || self.embedded
    }

    /// The bounds, which may be none.
    pub fn bounds(&self) -> &Bounds {
        static NONE: LazyLock<Bounds> = LazyLock::new(Bounds::default);
        self.bounds.as_deref().unwrap_or(&NONE)
    }
}
