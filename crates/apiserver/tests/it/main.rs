//! Tests of the API server over HTTP: requests of clients, and what is stored, served and recorded.

mod admission;
mod aggregate;
mod authentication;
mod authorization;
mod bootstrap;
mod concurrency;
mod custom;
mod expired;
mod fixture;
mod golden;
mod golden_apply;
mod minimal;
mod paths;
mod recorded;
mod replay;
mod services;
mod streams;
mod stress;
mod subresources;
mod verbs;
mod wire;
