//! CEL in Kubernetes: the variables, result types and cost budgets of expressions, and the error messages for users.
//! Used by the API server and the controllers; no I/O, no async.
//!
//! - [`compile_expression`](compile::compile_expression): compiles an expression with a known result type, or returns
//!   upstream's [`CompileError`].
//! - [`admission`]: validating and mutating policies, match conditions, and the validation of their expressions.
//! - [`authentication`] and [`authorization`]: expressions of the authentication and authorization configuration files.
//! - [`type_check`]: type-checks a policy's expressions against the kinds it matches.
//! - [`types`]: API types as CEL types, from the schema tables.
//! - [`json`]: CEL values as JSON.

pub mod admission;
pub mod authentication;
pub mod authorization;
pub mod compile;
pub mod json;
pub mod record;
pub mod type_check;
pub mod types;

pub use compile::{CompileError, CompileErrorType, CompiledExpr, EvaluationError};
