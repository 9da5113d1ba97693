//! Compiles, estimates, plans and evaluates an expression, as `tests/hostile.rs` does.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use run::ExpressionRunner;

#[path = "../../tests/open/mod.rs"]
mod open;
#[path = "../../tests/render/mod.rs"]
mod render;
#[path = "../../tests/hostile/run.rs"]
mod run;
#[path = "../../tests/shared/mod.rs"]
mod shared;

static RUNNER: LazyLock<ExpressionRunner> = LazyLock::new(ExpressionRunner::new);

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        RUNNER.run_expressions(text);
    }
});
