//! What callers bring along: types that may be created, variables that are found when they are asked for, a signal to stop,
//! programs on other threads.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use ferry_cel::{Bindings, Budget, Environment, Error, Lookup, Map, ObjectType, Program, Type, TypeResolver, Value};

/// A type as mutations have it: every field of `Object.a` is an `Object.a.b` or anything.
#[derive(Debug)]
struct Open(String);

impl ObjectType for Open {
    fn name(&self) -> &str {
        &self.0
    }

    fn field(&self, name: &str) -> Option<Type> {
        match name {
            "spec" => Some(Type::object(Open(format!("{}.{name}", self.0)))),
            "op" => Some(Type::String),
            _ => Some(Type::Dyn),
        }
    }

    fn creatable(&self) -> bool {
        true
    }
}

struct Types;

impl TypeResolver for Types {
    fn find(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
        known.then(|| Arc::new(Open(name.into())) as Arc<dyn ObjectType>)
    }
}

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

#[derive(Debug)]
struct Counted(AtomicUsize);

impl Lookup for Counted {
    fn get(&self, name: &str) -> Option<Result<Value<'_>, Error>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        (name == "answer").then_some(Ok(Value::Int(42)))
    }
}

#[test]
fn lazy_variables_are_asked_for_when_they_are_used() {
    let environment = Environment::new().variable("variables", Type::map(Type::String, Type::Dyn));
    let counted = Counted(AtomicUsize::new(0));
    let run = |source: &str| {
        let program = environment.compile(source).expect("it is right").program().expect("it has a program");
        let mut bindings = Bindings::new();
        bindings.set(0, Value::Map(Map::Lazy(&counted)));
        format!("{:?}", program.run(&bindings, &mut Budget::new(100)))
    };
    assert_eq!(run("false && variables.answer == 42"), "Ok(Bool(false))");
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
    assert_eq!(run("variables.answer == 42"), "Ok(Bool(true))");
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    assert_eq!(run("variables.nope"), "Err(Failed(\"no such key: nope\"))");
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
