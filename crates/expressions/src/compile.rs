//! Compiles one expression, with upstream's words for what is wrong with it.

use std::fmt;

use cel::{Environment, Program, Type};

/// What one expression may cost.
pub(crate) const PER_CALL: u64 = 1_000_000;

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct Compiled {
    /// As it was written.
    pub source: String,
    /// What it evaluates to.
    pub output: Type,
    /// How.
    pub program: Program,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault it is.
    pub kind: FaultKind,
    /// What users are told.
    pub detail: String,
}

/// Whose fault it is that an expression cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// That of whoever wrote it.
    Invalid,
    /// Ours.
    Internal,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Fault {}

/// Compiles an expression that must evaluate to one of some types; without any, to whatever it likes.
pub fn compile(environment: &Environment, source: &str, returns: &[Type]) -> Result<Compiled, Fault> {
    let invalid = |detail: String| Fault { kind: FaultKind::Invalid, detail };
    let checked = environment.compile(source).map_err(|issues| invalid(format!("compilation failed: {issues}")))?;
    let output = checked.output().clone();
    if !returns.is_empty() && !returns.contains(&output) {
        let got = output.declared();
        let wanted: Vec<String> = returns.iter().map(Type::declared).collect();
        return Err(invalid(match wanted.as_slice() {
            [one] => format!("must evaluate to {one} but got {got}"),
            many => format!("must evaluate to one of [{}] but got {got}", many.join(" ")),
        }));
    }
    let program = checked.program().map_err(|error| Fault {
        kind: FaultKind::Internal,
        detail: format!("program instantiation failed: {error}"),
    })?;
    Ok(Compiled { source: source.to_owned(), output, program })
}
