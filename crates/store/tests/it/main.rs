//! Tests of the store at its public interface, in one binary.

mod cache;
mod contents;
mod contract;
mod crash;
mod embedded;
mod engines;
mod etcd;
mod faults;
mod stress;
