//! All that is ever done with an expression: compiled, estimated, planned, and run within a budget, by itself and by another that
//! asks for its value, in an environment that has everything.

use std::sync::Arc;

use ferry_cel::{Bindings, Budget, Composition, Environment, Program, Type, Value};

use crate::{open::Types, render::render, shared::World};

const COST: u64 = 100_000;

/// Where expressions are tried.
pub struct Ground {
    world: World,
    environment: Environment,
}

impl Ground {
    /// The world of recorded verdicts, with variables that are expressions, values of every type, and types to create.
    pub fn new() -> Self {
        let world = World::new();
        let environment = plain()
            .into_iter()
            .fold(world.environment.clone(), |environment, (name, ty, _)| environment.variable(name, ty));
        let environment = environment.variable("variables", Type::map(Type::String, Type::Dyn)).types(Arc::new(Types));
        Self { world, environment }
    }

    /// Does it all. Of two expressions, with a line between them that is empty, the second may ask for `variables.first`.
    pub fn run(&self, text: &str) {
        let (first, second) = text.split_once("\n\n").unwrap_or(("variables.second + variables.first", text));
        let mut composition = Composition::new();
        composition.add("first", self.program(first));
        composition.add("second", self.program("object"));
        let Ok(program) = self.program(second) else { return };
        let mut bindings = Bindings::new();
        let plain = plain().map(|(name, _, value)| (name, value));
        for (name, value) in self.world.variables().into_iter().chain(plain) {
            bindings.set(self.number(name), value);
        }
        bindings.compose(self.number("variables"), &composition, COST);
        let mut budget = Budget::new(COST);
        if let Ok(value) = program.run(&bindings, &mut budget)
            && budget.spent() < COST / 10
        {
            render(&value);
        }
    }

    fn number(&self, name: &str) -> usize {
        self.environment.number(name).expect("the variable is declared")
    }

    fn program(&self, source: &str) -> Result<Program, String> {
        let checked = self.environment.compile(source).map_err(|issues| issues.to_string())?;
        let estimate = checked.estimate(&self.world);
        assert!(estimate.min <= estimate.max, "{source}");
        checked.program().map_err(|error| format!("{error:?}"))
    }
}

/// Variables whose types no schema gives.
fn plain() -> [(&'static str, Type, Value<'static>); 4] {
    [
        ("count", Type::Int, Value::Int(i64::MIN)),
        ("many", Type::Uint, Value::Uint(u64::MAX)),
        ("ratio", Type::Double, Value::Double(-0.0)),
        ("perhaps", Type::optional(Type::String), Value::Optional(Some(Arc::new(Value::text("é"))))),
    ]
}
