//! Add-ons that `ferry up` brings to a bare Kubernetes cluster so that it is useful at once. Each part is an ordinary client of the
//! API server and can be replaced by another implementation.

pub mod local_path;
pub mod metrics_server;
