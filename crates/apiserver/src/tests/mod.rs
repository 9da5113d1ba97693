//! Tests of single stages that need a whole server around them.

mod allocator_repair;
mod apiextensions;
mod audit;
pub mod authn;
mod flowcontrol;
mod panics;
mod resource_tables;
