//! Fuzzes a version of a CRD, an object and the old object, one line each.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/hostile/run.rs"]
mod run;

fuzz_target!(|data: &[u8]| {
    // Only the tests check whether the CRD is valid.
    let _ = run::run_input(data);
});
