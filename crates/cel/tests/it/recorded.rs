//! Expressions with the verdicts of Kubernetes' own environment: issues, types, costs, values and errors, all word for word.
//! `tests/go-cel` records them.

use crate::render::render;
use crate::shared::World;
use ferry_cel::{Bindings, Budget, Checked, Value};
use serde_json::Value as Json;

const LIMIT: u64 = 1_000_000;

#[test]
fn every_expression_has_the_verdict_of_kubernetes() {
    let world = World::new();
    let verdicts = include_str!("../recorded/verdicts.jsonl");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in verdicts.lines() {
        let expected: Json = serde_json::from_str(line).expect("verdicts are JSON");
        count += 1;
        if let Err(difference) = compare(&world, &expected) {
            wrong.push(format!("{}\n{difference}", expected["expression"]));
        }
    }
    assert!(count >= 300, "there are only {count} expressions");
    assert!(wrong.is_empty(), "{} of {count} differ\n\n{}", wrong.len(), wrong.join("\n\n"));
}

fn compare(world: &World, expected: &Json) -> Result<(), String> {
    let text = |key: &str| expected[key].as_str().unwrap_or("").to_owned();
    let checked = match world.environment.compile(&text("expression")) {
        Ok(checked) => checked,
        Err(issues) => return same("issues", text("issues").as_str(), &issues.to_string()),
    };
    same("issues", text("issues").as_str(), "")?;
    same("type", text("type").as_str(), &checked.output().to_string())?;
    let program = match checked.program() {
        Ok(program) => program,
        Err(error) => return same("program", text("program").as_str(), &error.to_string()),
    };
    same("program", text("program").as_str(), "")?;
    let number = |key: &str| expected[key].as_u64().unwrap_or(0);
    let estimate = checked.estimate(world);
    same("estimate", &(number("min"), number("max")), &(estimate.min, estimate.max))?;
    let (value, error, cost) = run(world, &program, &checked);
    same("error", text("error").as_str(), &error)?;
    same("value", text("value").as_str(), &value)?;
    if error.contains("cost limit exceeded") {
        // How far beyond the limit it was when that was seen is nobody's business.
        return Ok(());
    }
    same("cost", &number("cost"), &cost)
}

fn run(world: &World, program: &ferry_cel::Program, _: &Checked) -> (String, String, u64) {
    let mut bindings = Bindings::new();
    for (name, value) in world.variables() {
        bindings.set(world.environment.number(name).expect("the variable is declared"), value);
    }
    let mut budget = Budget::new(LIMIT);
    match program.run(&bindings, &mut budget) {
        Ok(value) => (render(&value), String::new(), budget.spent()),
        Err(error) => (String::new(), error.to_string(), budget.spent()),
    }
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("  {what}\n    expected {expected:?}\n    found    {found:?}")) }
}

#[test]
fn values_are_small() {
    assert!(size_of::<Value<'_>>() <= 40, "{}", size_of::<Value<'_>>());
}
