//! Tests of the public interface in one binary. `hostile.rs` is separate because it installs its own allocator.

#[path = "../open/mod.rs"]
mod open;
mod recorded;
#[path = "../render/mod.rs"]
mod render;
#[path = "../shared/mod.rs"]
mod shared;
mod types;
