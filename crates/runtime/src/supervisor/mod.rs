//! The supervisor: one small process per pod that holds the pod's namespaces, is the parent of its containers, and keeps
//! their output and exit codes.
//!
//! Supervisors are forked from one launcher, which is this program under another name; they share its memory. A supervisor
//! lives in the pod's network, IPC and UTS namespaces, so that containers inherit them. It survives the node process, which
//! finds it again by its socket.

mod client;
mod connection;
mod exit_record;
mod launcher;
mod log_file;
mod output;
mod protocol;
mod sandbox;
mod service;

pub use client::{ExecSession, MessageStream, SupervisorClient, SupervisorError};
pub use exit_record::ExitRecord;
pub use launcher::{LAUNCHER_NAME, Launcher, run_launcher};
pub use output::set_nonblocking;
pub use protocol::{ContainerProcess, SandboxSpec, SupervisorEvent, SupervisorRequest, SupervisorResponse};
