//! Tests of the language at its public interface, in one binary. `hostile.rs` is another, because it counts memory by an
//! allocator of its own.

#[path = "../open/mod.rs"]
mod open;
mod recorded;
#[path = "../render/mod.rs"]
mod render;
#[path = "../shared/mod.rs"]
mod shared;
mod types;
