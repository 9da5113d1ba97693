//! Expressions with the results of Kubernetes' own environment: issues, types, costs, values and errors, byte for byte.
//! `tests/go-cel` records them.

use crate::render::render_value;
use crate::shared::TestFixture;
use ferry_cel::{Activation, CostTracker, Value};
use serde_json::Value as Json;

const LIMIT: u64 = 1_000_000;

#[test]
fn recorded_expressions_match_kubernetes() {
    let fixture = TestFixture::new();
    let recordings = include_str!("../recorded/verdicts.jsonl");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in recordings.lines() {
        let expected: Json = serde_json::from_str(line).expect("recordings are JSON");
        count += 1;
        if let Some(difference) = compare_with_recording(&fixture, &expected) {
            wrong.push(format!("{}\n{difference}", expected["expression"]));
        }
    }
    assert!(count >= 300, "there are only {count} expressions");
    assert!(wrong.is_empty(), "{} of {count} differ\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Returns the first difference between the recorded and the actual results.
fn compare_with_recording(fixture: &TestFixture, expected: &Json) -> Option<String> {
    let text = |key: &str| expected[key].as_str().unwrap_or("").to_owned();
    let number = |key: &str| expected[key].as_u64().unwrap_or(0);
    let checked = match fixture.environment.compile(&text("expression")) {
        Ok(checked) => checked,
        Err(issues) => return find_difference("issues", text("issues").as_str(), &issues.to_string()),
    };
    let output = checked.output_type().to_string();
    let compiled = || find_difference("issues", text("issues").as_str(), "");
    let typed = || find_difference("type", text("type").as_str(), &output);
    let program = match checked.plan_program() {
        Ok(program) => program,
        Err(error) => {
            return compiled()
                .or_else(typed)
                .or_else(|| find_difference("program", text("program").as_str(), &error.to_string()));
        }
    };
    let estimate = checked.estimate_cost(fixture);
    let (value, error, cost) = run_program(fixture, &program);
    let cost_limited = error.contains("cost limit exceeded");
    compiled()
        .or_else(typed)
        .or_else(|| find_difference("program", text("program").as_str(), ""))
        .or_else(|| find_difference("estimate", &(number("min"), number("max")), &(estimate.min, estimate.max)))
        .or_else(|| find_difference("error", text("error").as_str(), &error))
        .or_else(|| find_difference("value", text("value").as_str(), &value))
        // The exact cost at which the limit is detected is not part of the contract.
        .or_else(|| if cost_limited { None } else { find_difference("cost", &number("cost"), &cost) })
}

fn run_program(fixture: &TestFixture, program: &ferry_cel::Program) -> (String, String, u64) {
    let mut activation = Activation::new();
    for (name, value) in fixture.variable_values() {
        activation.bind_value(fixture.environment.variable_number(name).expect("the variable is declared"), value);
    }
    let mut budget = CostTracker::new(LIMIT);
    match program.run(&activation, &mut budget) {
        Ok(value) => (render_value(&value), String::new(), budget.actual_cost()),
        Err(error) => (String::new(), error.to_string(), budget.actual_cost()),
    }
}

fn find_difference<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, expected: &T, found: &T) -> Option<String> {
    (expected != found).then(|| format!("  {what}\n    expected {expected:?}\n    found    {found:?}"))
}

#[test]
fn value_size_is_bounded() {
    assert!(size_of::<Value<'_>>() <= 40, "{}", size_of::<Value<'_>>());
}
