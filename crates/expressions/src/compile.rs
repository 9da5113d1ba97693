//! Compiles one CEL expression, with upstream's error messages.

use std::fmt;

use cel::{Environment, Program, Type};

/// Runtime cost limit of one expression.
pub(crate) const PER_CALL: u64 = 1_000_000;

/// A compiled expression.
#[derive(Debug)]
pub struct Compiled {
    /// The expression's source.
    pub source: String,
    /// The type of the result.
    pub output: Type,
    /// The executable program.
    pub program: Program,
}

/// A compile error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The cause.
    pub kind: FaultKind,
    /// The message for users.
    pub detail: String,
}

/// The cause of a compile error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The expression is invalid.
    Invalid,
    /// An internal error.
    Internal,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Fault {}

/// Compiles an expression that must evaluate to one of the types `returns`; to any type if that is empty.
pub fn compile(environment: &Environment, source: &str, returns: &[Type]) -> Result<Compiled, Fault> {
    let invalid = |detail: String| Fault { kind: FaultKind::Invalid, detail };
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
    let program = checked.plan_program().map_err(|error| Fault {
        kind: FaultKind::Internal,
        detail: format!("program instantiation failed: {error}"),
    })?;
    Ok(Compiled { source: source.to_owned(), output, program })
}
