//! Constructible types, composed variables, interruption, and programs shared between threads.

use std::sync::{Arc, atomic::AtomicBool};

use crate::open::OpenTypeResolver;
use ferry_cel::{Activation, Composition, CostTracker, Environment, EvalError, Program, Type, Value};

fn evaluate(environment: &Environment, source: &str) -> String {
    let checked = environment.compile(source).unwrap_or_else(|issues| panic!("{issues}"));
    let program = checked.plan_program().expect("the program is planned");
    format!("{:?}", program.run(&Activation::new(), &mut CostTracker::new(1_000)))
}

#[test]
fn objects_are_constructed_by_type_name() {
    let environment = Environment::new().with_types(Arc::new(OpenTypeResolver));
    let made = evaluate(&environment, "Object{spec: Object.spec{replicas: 1 + 2}, ?gone: optional.none()}");
    assert!(made.contains("\"Object.spec\"") && made.contains("Int(3)") && !made.contains("gone"), "{made}");
    assert_eq!(evaluate(&environment, "JSONPatch{op: 'add'}.op"), "Ok(String(\"add\"))");
    assert_eq!(evaluate(&environment, "has(Object{a: 1}.b)"), "Ok(Bool(false))");
    let message = |source: &str| environment.compile(source).expect_err("the expression does not compile").to_string();
    assert!(message("Nope{}").starts_with("ERROR: <input>:1:5: undeclared reference to 'Nope' (in container '')"));
    assert!(message("int{}").contains("'int' is not a message type"));
    let wrong = message("JSONPatch{op: 1}");
    assert!(wrong.contains("1:13: expected type of field 'op' is 'string' but provided type is 'int'"), "{wrong}");
}

#[test]
fn composed_variables_are_evaluated_on_first_use() {
    let environment = Environment::new()
        .with_variable("n", Type::Int)
        .with_variable("variables", Type::map_of(Type::String, Type::Dyn));
    let program = |source: &str| environment.compile(source).expect("the expression compiles").plan_program();
    let mut composition = Composition::new();
    composition.add_variable("answer", program("n * 2"));
    composition.add_variable("more", program("variables.answer + variables.answer"));
    composition.add_variable("broken", program("n / 0"));
    composition.add_variable("wrong", Err(EvalError::Failed("it is".into())));
    let check = |source: &str, want: &str, cost: u64| {
        let program = program(source).expect("the program is planned");
        let mut activation = Activation::new();
        activation.bind_value(0, Value::Int(21)).bind_composition(1, &composition, 100);
        assert_eq!(format!("{:?}", program.run(&activation, &mut CostTracker::new(100))), want, "{source}");
        assert_eq!(activation.take_composed_cost(), cost, "{source}");
    };
    check("false && variables.answer == 42", "Ok(Bool(false))", 0);
    check("variables.answer == 42", "Ok(Bool(true))", 2);
    check("variables.answer + variables.answer", "Ok(Int(84))", 2);
    check("variables.more", "Ok(Int(84))", 2 + 5);
    check("has(variables.answer) && !has(variables.nope)", "Ok(Bool(true))", 2);
    check("variables.nope", "Err(Failed(\"no such key: nope\"))", 0);
    let broken = "Err(Failed(\"composited variable \\\"broken\\\" fails to evaluate: division by zero\"))";
    check("variables.broken", broken, 2);
    check("true || variables.broken", "Ok(Bool(true))", 0);
    let wrong = "Err(Failed(\"composited variable \\\"wrong\\\" fails to compile: it is\"))";
    check("variables.wrong", wrong, 0);
}

#[test]
fn interrupted_evaluation_fails() {
    let environment = Environment::new();
    let program = environment
        .compile("lists.range(1000).all(x, x >= 0)")
        .expect("the expression compiles")
        .plan_program()
        .expect("the program is planned");
    let stop = AtomicBool::new(true);
    let outcome = program.run(&Activation::new(), &mut CostTracker::new(u64::MAX).with_interrupt(&stop));
    assert_eq!(outcome, Err(EvalError::Interrupted));
}

#[test]
fn programs_and_values_are_send_and_sync() {
    fn shareable<T: Send + Sync>(_: &T) {}
    let program: Program = Environment::new()
        .compile("[3, 1, 2].sort() == [1, 2, 3]")
        .expect("the expression compiles")
        .plan_program()
        .expect("the program is planned");
    shareable(&program);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(program.run(&Activation::new(), &mut CostTracker::new(1_000)), Ok(Value::Bool(true)))
            });
        }
    });
}

#[test]
fn unbound_variable_is_named_in_the_error() {
    let environment = Environment::new().with_variable("object", Type::Dyn).with_variable("a.b", Type::Int);
    let run = |source: &str| {
        let program = environment
            .compile(source)
            .expect("the expression compiles")
            .plan_program()
            .expect("the program is planned");
        format!("{:?}", program.run(&Activation::new(), &mut CostTracker::new(100)))
    };
    assert_eq!(run("object.x"), "Err(Failed(\"no such attribute(s): object\"))");
    assert_eq!(run("a.b + 1"), "Err(Failed(\"no such attribute(s): a.b\"))");
    assert!(environment.compile("object.x == a.b").expect("the expression compiles").uses_variable(1));
    assert!(!environment.compile("object.x == 1").expect("the expression compiles").uses_variable(1));
}
