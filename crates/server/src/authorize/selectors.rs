//! The selectors of a request, as authorizers see them: requirements that all must hold.

use std::sync::LazyLock;

/// What a list, a watch or a deletion of many is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// The requirements on fields.
    pub fields: Vec<Requirement>,
    /// Why the field selector could not be read: then `fields` is empty.
    pub fields_error: Option<String>,
    /// The requirements on labels.
    pub labels: Vec<Requirement>,
    /// Why the label selector could not be read: then `labels` is empty.
    pub labels_error: Option<String>,
}

/// What must be true of a label or a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label or the field.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what.
    pub values: Vec<String>,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// It is one of the values.
    In,
    /// It is none of the values.
    NotIn,
    /// There is one.
    Exists,
    /// There is none.
    DoesNotExist,
}

impl Selectors {
    /// No limits.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Selectors> = LazyLock::new(Selectors::default);
        &NONE
    }
}
