//! Types of expressions. Object types resolve their fields on demand through [`ObjectType`], so that schemas serve as
//! types without being copied.

use std::{fmt, sync::Arc};

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type; checked at run time.
    Dyn,
    /// The type of an expression that failed to type-check; assignable to everything, to avoid follow-up errors.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`: signed 64-bit integers.
    Int,
    /// `uint`: unsigned 64-bit integers.
    Uint,
    /// `double`: 64-bit floating-point numbers.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// `list`, with its element type.
    List(Arc<Type>),
    /// `map`, with its key and value types.
    Map(Arc<(Type, Type)>),
    /// `optional_type`: a value that may be absent.
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type of Kubernetes' libraries, by name.
    Native(&'static str),
    /// An object type with declared fields.
    Object(Arc<dyn ObjectType>),
    /// A type parameter.
    Param(u32),
}

/// An object type with declared fields: a CRD schema, a built-in kind, or a message type that can be constructed.
pub trait ObjectType: fmt::Debug + Send + Sync {
    /// The type name; types with equal names are equal.
    fn type_name(&self) -> &str;

    /// Returns the type of a field, by its escaped name.
    fn field_type(&self, name: &str) -> Option<Type>;

    /// Whether objects of the type can be constructed: `Name{field: value}`.
    fn is_constructible(&self) -> bool {
        false
    }
}

/// Names of the types of Kubernetes' libraries.
pub(crate) mod type_names {
    pub(crate) const URL: &str = "kubernetes.URL";
    pub(crate) const QUANTITY: &str = "kubernetes.Quantity";
    pub(crate) const SEMVER: &str = "kubernetes.Semver";
    pub(crate) const FORMAT: &str = "kubernetes.NamedFormat";
    pub(crate) const IP: &str = "net.IP";
    pub(crate) const CIDR: &str = "net.CIDR";
    pub(crate) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
    pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
    pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
    pub(crate) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
    pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";

    pub(crate) const ALL: [&str; 11] =
        [URL, QUANTITY, SEMVER, FORMAT, IP, CIDR, AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION];
}

impl Type {
    /// The type of the variable `authorizer`.
    pub const AUTHORIZER: Self = Self::Native(type_names::AUTHORIZER);
    /// The type of `authorizer.requestResource`.
    pub const RESOURCE_CHECK: Self = Self::Native(type_names::RESOURCE_CHECK);
    /// The type of quantities.
    pub const QUANTITY: Self = Self::Native(type_names::QUANTITY);

    /// A list type.
    pub fn list_of(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// A map type.
    pub fn map_of(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// An optional type.
    pub fn optional_of(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// An object type.
    pub fn object_of(of: impl ObjectType + 'static) -> Self {
        Self::Object(Arc::new(of))
    }

    /// Whether this is `bool`, as required of validation rules.
    pub fn is_bool(&self) -> bool {
        matches!(self, Self::Bool)
    }

    /// Whether this is `string`, as required of message expressions.
    pub fn is_string(&self) -> bool {
        matches!(self, Self::String)
    }

    /// Returns the declared name, which differs from the type checker's messages for timestamps, durations and `null`.
    pub fn declared_name(&self) -> String {
        match self {
            Self::List(of) => format!("list({})", of.declared_name()),
            Self::Map(of) => format!("map({}, {})", of.0.declared_name(), of.1.declared_name()),
            Self::Optional(of) => format!("optional_type({})", of.declared_name()),
            Self::Type(Some(of)) => format!("type({})", of.declared_name()),
            other => other.type_name().to_owned(),
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether the type is opaque: opaque types have no fields; other native types are objects with undeclared fields.
    pub(crate) fn is_opaque(&self) -> bool {
        matches!(self, Self::Optional(_) | Self::Native(type_names::IP | type_names::CIDR))
    }

    /// Returns the type name without type parameters.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Native(name) => name,
            Self::Object(object) => object.type_name(),
            Self::Param(_) => "param",
        }
    }
}

/// Structural equality.
impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Native(a), Self::Native(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a.type_name() == b.type_name(),
            (Self::Param(a), Self::Param(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Formats the type as the type checker's messages do.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map({}, {})", of.0, of.1),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Param(number) => write!(f, "_var{number}"),
            other => f.write_str(other.type_name()),
        }
    }
}
