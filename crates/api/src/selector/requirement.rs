//! The requirements of label selectors.

/// A key and the operator on its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelRequirement {
    pub key: String,
    pub operator: LabelOperator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelOperator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}
