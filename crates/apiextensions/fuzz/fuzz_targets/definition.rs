//! A version of a definition, an object of it, and what the object was before: a line each.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/hostile/run.rs"]
mod run;

fuzz_target!(|data: &[u8]| {
    // Whether it is let pass is a question of the tests.
    let _ = run::run_input(data);
});
