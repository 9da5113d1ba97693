//! Tests of the API types against recordings and upstream's rules.

mod apply;
mod discovery;
mod fixtures;
mod generate;
mod messages;
mod openapi;
mod roundtrip;
mod shared;
mod strategic;
mod tables;
mod validation;
