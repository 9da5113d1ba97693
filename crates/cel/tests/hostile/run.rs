//! Runs an expression through all stages: compiled, estimated, planned and evaluated within a cost limit, directly and as a
//! composed variable.

use std::{error::Error, sync::Arc};

use ferry_cel::{Activation, Composition, CostTracker, Environment, Program, Type, Value};

use crate::{open::OpenTypeResolver, render::render_value, shared::TestFixture};

const COST: u64 = 100_000;

/// Compiles and evaluates arbitrary expressions.
pub struct ExpressionRunner {
    fixture: TestFixture,
    environment: Environment,
}

impl ExpressionRunner {
    /// Extends the test environment by untyped and composed variables and constructible types.
    pub fn new() -> Self {
        let fixture = TestFixture::new();
        let environment = untyped_variables()
            .into_iter()
            .fold(fixture.environment.clone(), |environment, (name, ty, _)| environment.with_variable(name, ty));
        let environment = environment
            .with_variable("variables", Type::map_of(Type::String, Type::Dyn))
            .with_types(Arc::new(OpenTypeResolver));
        Self { fixture, environment }
    }

    /// Runs an expression. Of two expressions separated by an empty line, the second may use `variables.first`.
    pub fn run_expressions(&self, text: &str) {
        let (first, second) = text.split_once("\n\n").unwrap_or(("variables.second + variables.first", text));
        let mut composition = Composition::new();
        composition.add_variable("first", self.compile_program(first));
        composition.add_variable("second", self.compile_program("object"));
        let Ok(program) = self.compile_program(second) else { return };
        let mut activation = Activation::new();
        let plain = untyped_variables().map(|(name, _, value)| (name, value));
        for (name, value) in self.fixture.variable_values().into_iter().chain(plain) {
            activation.bind_value(self.variable_number(name), value);
        }
        activation.bind_composition(self.variable_number("variables"), &composition, COST);
        let mut budget = CostTracker::new(COST);
        if let Ok(value) = program.run(&activation, &mut budget)
            && budget.actual_cost() < COST / 10
        {
            render_value(&value);
        }
    }

    fn variable_number(&self, name: &str) -> usize {
        self.environment.variable_number(name).expect("the variable is declared")
    }

    fn compile_program(&self, source: &str) -> Result<Program, Box<dyn Error>> {
        let checked = self.environment.compile(source)?;
        let estimate = checked.estimate_cost(&self.fixture);
        assert!(estimate.min <= estimate.max, "{source}");
        Ok(checked.plan_program()?)
    }
}

/// Variables without a schema.
fn untyped_variables() -> [(&'static str, Type, Value<'static>); 4] {
    [
        ("count", Type::Int, Value::Int(i64::MIN)),
        ("many", Type::Uint, Value::Uint(u64::MAX)),
        ("ratio", Type::Double, Value::Double(-0.0)),
        ("perhaps", Type::optional_of(Type::String), Value::Optional(Some(Arc::new(Value::from_string("é"))))),
    ]
}
