//! CEL expressions of admission: policies and match conditions, compiled once per object and evaluated per request.

mod compiler;
mod conditions;
mod mutating;
mod scope;
mod types;
mod validating;
pub mod validation;

pub use compiler::{ExpressionCompiler, OptionalVars, TypeOverwrites};
pub use conditions::{MatchConditions, MatchResult};
pub use mutating::{MutatingPolicy, MutationResult, PolicyMutation};
pub use scope::AdmissionInput;
pub(crate) use validating::policy_variables;
pub use validating::{AuditAnnotation, PolicyDecision, ValidateResult, ValidatingPolicy};
