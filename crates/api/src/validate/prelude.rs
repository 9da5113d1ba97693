//! The common imports of rule functions.

pub(in crate::validate) use super::{
    ErrorList,
    at::{FieldCursor, IMMUTABLE},
    error::{Bad, Fault, FieldError},
    names,
    render::semantically_equal,
    restore::set_or_remove,
    rules,
};
pub(in crate::validate) use crate::Value;
