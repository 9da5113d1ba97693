//! The common imports of rule functions.

pub(in crate::validate) use super::{
    ErrorList,
    field_cursor::{FieldCursor, IMMUTABLE},
    field_error::{BadValue, FieldError, FieldErrorType},
    names,
    render::semantically_equal,
    reset_fields::set_or_remove,
    rules,
};
pub(in crate::validate) use crate::Value;
