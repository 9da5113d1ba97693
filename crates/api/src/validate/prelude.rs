//! The common imports of rule functions.

pub(in crate::validate) use super::{
    ErrorList, check_block,
    field_cursor::{FieldCursor, IMMUTABLE},
    names,
    reset_fields::set_or_remove,
    violates_block,
};
pub(in crate::validate) use crate::{
    Value,
    field_error::{BadValue, FieldError, FieldErrorType},
    render::{render_bad_value, semantically_equal},
};
