//! CEL expressions of admission: policies and match conditions, compiled once per object and evaluated per request.

mod compiler;
mod conditions;
pub mod faults;
mod mutating;
mod scope;
mod types;
mod validating;

pub use compiler::{Compiler, Subject, Uses};
pub use conditions::{Conditions, Match};
pub use mutating::{Change, MutatingPolicy, Mutation};
pub use scope::Input;
pub(crate) use validating::variables;
pub use validating::{Annotation, Decision, Judgement, ValidatingPolicy};
