//! How components speak to an API server: transports, informers, the work queue, expectations and the event recorder.
//!
//! The client itself is [`kube::Client`]. It speaks TLS to any Kubernetes API server ([`transport::from_kubeconfig`]) or
//! to the API server's own service in this process ([`transport::in_process`]): same requests, same pipeline.

mod cache;
mod delay;
pub mod errors;
pub mod expectations;
pub mod informer;
pub mod queue;
pub mod recorder;
pub mod transport;

pub use errors::ApiErrorExt;
pub use expectations::Expectations;
pub use informer::{Change, Informer, Informers};
pub use queue::{Queue, Requeue};
pub use recorder::Recorder;
