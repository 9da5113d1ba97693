//! What nearly every file of rules needs: places, faults, forms of names, and the tables that call them.

pub(in crate::validate) use super::{
    Errors,
    at::{At, IMMUTABLE},
    error::{Bad, Fault, FieldError},
    names,
    render::same,
    restore::put,
    rules,
};
pub(in crate::validate) use crate::Value;
