//! CEL validation rules (`x-kubernetes-validations`). They are compiled on first use, typed by the schema, and run
//! within a cost budget.

mod cel_types;
mod compiler;
mod cost_check;
mod evaluator;
mod field_path;
mod size_estimator;

pub use cost_check::check_rules;
pub use evaluator::evaluate_rules;

/// Runtime cost limit of one evaluation.
const PER_CALL_COST_LIMIT: u64 = 1_000_000;
