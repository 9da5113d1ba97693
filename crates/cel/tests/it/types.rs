//! What callers bring along: types that may be created, variables that are found when they are asked for, a signal to stop,
//! programs on other threads.

use std::sync::{Arc, atomic::AtomicBool};

use crate::open::Types;
use ferry_cel::{Bindings, Budget, Composition, Environment, Error, Program, Type, Value};

fn value(environment: &Environment, source: &str) -> String {
    let checked = environment.compile(source).unwrap_or_else(|issues| panic!("{issues}"));
    let program = checked.program().expect("it has a program");
    format!("{:?}", program.run(&Bindings::new(), &mut Budget::new(1_000)))
}

#[test]
fn objects_are_created_by_name() {
    let environment = Environment::new().types(Arc::new(Types));
    let made = value(&environment, "Object{spec: Object.spec{replicas: 1 + 2}, ?gone: optional.none()}");
    assert!(made.contains("\"Object.spec\"") && made.contains("Int(3)") && !made.contains("gone"), "{made}");
    assert_eq!(value(&environment, "JSONPatch{op: 'add'}.op"), "Ok(String(\"add\"))");
    assert_eq!(value(&environment, "has(Object{a: 1}.b)"), "Ok(Bool(false))");
    let message = |source: &str| environment.compile(source).expect_err("it is wrong").to_string();
    assert!(message("Nope{}").starts_with("ERROR: <input>:1:5: undeclared reference to 'Nope' (in container '')"));
    assert!(message("int{}").contains("'int' is not a message type"));
    let wrong = message("JSONPatch{op: 1}");
    assert!(wrong.contains("1:13: expected type of field 'op' is 'string' but provided type is 'int'"), "{wrong}");
}

#[test]
fn composed_variables_are_evaluated_when_they_are_used() {
    let environment =
        Environment::new().variable("n", Type::Int).variable("variables", Type::map(Type::String, Type::Dyn));
    let program = |source: &str| environment.compile(source).expect("it is right").program().expect("it has a program");
    let mut composition = Composition::new();
    composition.add("answer", Ok(program("n * 2")));
    composition.add("more", Ok(program("variables.answer + variables.answer")));
    composition.add("broken", Ok(program("n / 0")));
    composition.add("wrong", Err("it is".into()));
    let check = |source: &str, want: &str, cost: u64| {
        let program = program(source);
        let mut bindings = Bindings::new();
        bindings.set(0, Value::Int(21)).compose(1, &composition, 100);
        assert_eq!(format!("{:?}", program.run(&bindings, &mut Budget::new(100))), want, "{source}");
        assert_eq!(bindings.take_composed_cost(), cost, "{source}");
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
fn evaluation_stops_when_it_is_told_to() {
    let environment = Environment::new();
    let program =
        environment.compile("lists.range(1000).all(x, x >= 0)").expect("it is right").program().expect("it has one");
    let stop = AtomicBool::new(true);
    let outcome = program.run(&Bindings::new(), &mut Budget::new(u64::MAX).stoppable(&stop));
    assert_eq!(outcome, Err(Error::Interrupted));
}

#[test]
fn programs_are_shared_between_threads() {
    fn shareable<T: Send + Sync>(_: &T) {}
    let program: Program = Environment::new()
        .compile("[3, 1, 2].sort() == [1, 2, 3]")
        .expect("it is right")
        .program()
        .expect("it has one");
    shareable(&program);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(program.run(&Bindings::new(), &mut Budget::new(1_000)), Ok(Value::Bool(true))));
        }
    });
}

#[test]
fn variables_that_have_no_value_are_named() {
    let environment = Environment::new().variable("object", Type::Dyn).variable("a.b", Type::Int);
    let run = |source: &str| {
        let program = environment.compile(source).expect("it is right").program().expect("it has a program");
        format!("{:?}", program.run(&Bindings::new(), &mut Budget::new(100)))
    };
    assert_eq!(run("object.x"), "Err(Failed(\"no such attribute(s): object\"))");
    assert_eq!(run("a.b + 1"), "Err(Failed(\"no such attribute(s): a.b\"))");
    assert!(environment.compile("object.x == a.b").expect("it is right").uses(1));
    assert!(!environment.compile("object.x == 1").expect("it is right").uses(1));
}
