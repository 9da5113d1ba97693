//! kubectl: the command line tool of Kubernetes.
//!
//! [`run_command`] parses the arguments with the table of commands, runs the command and returns its exit code. The crate
//! knows nothing of the server beyond its API.

mod command_help;
mod command_table;
mod commands;
mod completion;
mod describe;
mod discovery;
mod environment_name;
pub mod errors;
mod files;
mod flag_set;
mod flag_value;
mod go_template;
#[cfg(test)]
mod hostile_tests;
mod jsonpath;
mod klog;
mod kubeconfig;
mod kuberc;
mod kustomize;
mod last_applied;
mod manifest;
mod merge_conflicts;
mod merge_patch;
mod object;
mod oidc;
pub mod output;
mod plugins;
mod printers;
mod remote_file;
mod resource;
mod rest;
mod run;
mod session;
mod streams;
mod suggestions;
mod tab_writer;
mod usage;

pub use run::run_command;
