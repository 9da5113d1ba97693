//! Types of expressions. What objects have is known to whoever declares them: [`ObjectType`] is asked field by field, so
//! that schemas are types without being copied.

use std::{fmt, sync::Arc};

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type; what fits is found when it is evaluated.
    Dyn,
    /// What could not be typed; it fits everything so that one mistake is told once.
    Error,
    /// The type of `null`.
    Null,
    /// Truth.
    Bool,
    /// Whole numbers of 64 bits.
    Int,
    /// Whole numbers that are not negative.
    Uint,
    /// Floating-point numbers.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// Lists of elements of a type.
    List(Arc<Type>),
    /// Maps from keys to values.
    Map(Arc<(Type, Type)>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type of Kubernetes' libraries, by name.
    Native(&'static str),
    /// Objects with declared fields.
    Object(Arc<dyn ObjectType>),
    /// A type that is not yet known.
    Param(u32),
}

/// Objects with declared fields: a custom resource's schema, a built-in kind, a message that may be created.
pub trait ObjectType: fmt::Debug + Send + Sync {
    /// The name of the type; types of one name are the same.
    fn name(&self) -> &str;

    /// The type of a field, by the name that expressions use for it.
    fn field(&self, name: &str) -> Option<Type>;

    /// Whether fields may be given values: `Name{field: value}`.
    fn creatable(&self) -> bool {
        false
    }
}

/// The names of Kubernetes' own types.
pub(crate) mod names {
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
    /// The type of `authorizer`.
    pub const AUTHORIZER: Self = Self::Native(names::AUTHORIZER);
    /// The type of `authorizer.requestResource`.
    pub const RESOURCE_CHECK: Self = Self::Native(names::RESOURCE_CHECK);
    /// The type of quantities.
    pub const QUANTITY: Self = Self::Native(names::QUANTITY);

    /// Lists of a type.
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// Maps from a type to a type.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// A value of a type that may be absent.
    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Objects whose fields somebody knows.
    pub fn object(of: impl ObjectType + 'static) -> Self {
        Self::Object(Arc::new(of))
    }

    /// Whether it is the type of truth values, as rules must be.
    pub fn is_bool(&self) -> bool {
        matches!(self, Self::Bool)
    }

    /// Whether it is the type of texts, as message expressions must be.
    pub fn is_string(&self) -> bool {
        matches!(self, Self::String)
    }

    /// The name as declarations have it, which differs from what messages of the checker say for times and `null`.
    pub fn declared(&self) -> String {
        match self {
            Self::List(of) => format!("list({})", of.declared()),
            Self::Map(of) => format!("map({}, {})", of.0.declared(), of.1.declared()),
            Self::Optional(of) => format!("optional_type({})", of.declared()),
            Self::Type(Some(of)) => format!("type({})", of.declared()),
            other => other.name().to_owned(),
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Opaque types have no fields at all; the other native ones are objects whose fields nobody knows.
    pub(crate) fn is_opaque(&self) -> bool {
        matches!(self, Self::Optional(_) | Self::Native(names::IP | names::CIDR))
    }

    /// The name without what it is applied to.
    pub(crate) fn name(&self) -> &str {
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
            Self::Object(object) => object.name(),
            Self::Param(_) => "param",
        }
    }
}

/// Two types are equal if they are the same in every part.
impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Native(a), Self::Native(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a.name() == b.name(),
            (Self::Param(a), Self::Param(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// As messages about types write them.
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
            other => f.write_str(other.name()),
        }
    }
}
