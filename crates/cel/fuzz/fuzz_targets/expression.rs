//! An expression is compiled, estimated, planned and run against a document.
#![no_main]

use cel::{Bindings, Budget, Environment, Type, Unlimited, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let environment = Environment::new().variable("object", Type::Dyn).json_patch();
    let checked = match environment.compile(source) {
        Ok(checked) => checked,
        Err(issues) => return drop(issues.to_string()),
    };
    let _ = checked.estimate(&Unlimited);
    let Ok(program) = checked.program() else { return };
    let document = serde_json::json!({"name": "a", "list": [1, 2, 3], "map": {"a": "b"}, "nothing": null, "ratio": 1.5});
    let mut bindings = Bindings::new();
    bindings.set(0, Value::document(&document, None).expect("any document is a value"));
    let _ = program.run(&bindings, &mut Budget::new(100_000));
});
