//! An expression is compiled, estimated, planned and run, as the tests of this crate do without coverage.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use run::Ground;

#[path = "../../tests/open/mod.rs"]
mod open;
#[path = "../../tests/render/mod.rs"]
mod render;
#[path = "../../tests/hostile/run.rs"]
mod run;
#[path = "../../tests/shared/mod.rs"]
mod shared;

static GROUND: LazyLock<Ground> = LazyLock::new(Ground::new);

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        GROUND.run(text);
    }
});
