//! Compiles one CEL expression, with upstream's error messages.

use cel::{Activation, CostTracker, Environment, EvalError, Program, Type, Value};

/// Runtime cost limit of one expression.
pub(crate) const PER_CALL_LIMIT: u64 = 1_000_000;

/// A compiled expression.
#[derive(Debug)]
pub struct CompiledExpr {
    /// The expression's source.
    pub source: String,
    /// The type of the result.
    pub output: Type,
    /// The executable program.
    pub program: Program,
}

/// A compile error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct CompileError {
    /// The cause.
    pub kind: CompileErrorType,
    /// The message for users.
    pub detail: String,
}

/// The cause of a compile error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileErrorType {
    /// The expression is invalid.
    Invalid,
    /// An internal error.
    Internal,
}

/// An expression that does not evaluate to a usable result, with upstream's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression does not compile.
    #[error("compilation error: {0}")]
    Compilation(CompileError),
    /// The evaluation failed.
    #[error("expression '{expression}' resulted in error: {source}")]
    Failed {
        /// The expression's source.
        expression: String,
        /// The evaluation error.
        source: EvalError,
    },
    /// The result has an unusable type or value.
    #[error("{0}")]
    Result(String),
}

impl EvaluationError {
    pub(crate) fn new(message: impl ToString) -> Self {
        Self::Result(message.to_string())
    }
}

impl CompiledExpr {
    /// Evaluates the expression within the cost limit.
    pub(crate) fn evaluate<'a>(
        &'a self,
        activation: &Activation<'a>,
        cost: &mut CostTracker<'_>,
    ) -> Result<Value<'a>, EvaluationError> {
        let failed = |source| EvaluationError::Failed { expression: self.source.clone(), source };
        self.program.run(activation, cost).map_err(failed)
    }
}

/// Compiles an expression that must evaluate to one of the types `returns`; to any type if that is empty.
pub fn compile_expression(
    environment: &Environment,
    source: &str,
    returns: &[Type],
) -> Result<CompiledExpr, CompileError> {
    let invalid = |detail: String| CompileError { kind: CompileErrorType::Invalid, detail };
    let checked = environment.compile(source).map_err(|issues| invalid(format!("compilation failed: {issues}")))?;
    let output = checked.output_type().clone();
    if !returns.is_empty() && !returns.contains(&output) {
        let got = output.declared_name();
        let wanted: Vec<String> = returns.iter().map(Type::declared_name).collect();
        return Err(invalid(match wanted.as_slice() {
            [one] => format!("must evaluate to {one} but got {got}"),
            many => format!("must evaluate to one of [{}] but got {got}", many.join(" ")),
        }));
    }
    let program = checked.plan_program().map_err(|error| CompileError {
        kind: CompileErrorType::Internal,
        detail: format!("program instantiation failed: {error}"),
    })?;
    Ok(CompiledExpr { source: source.to_owned(), output, program })
}
