//! Client-side machinery shared by the components: transports, informers, work queue, expectations, event
//! recorder, leader election, panic containment.
//!
//! The client itself is [`kube::Client`]. It speaks TLS to any Kubernetes API server
//! ([`transport::client_from_kubeconfig`]) or calls the API server's service in this process
//! ([`transport::in_process_client`]): same requests, same handler chain.

mod cached_view;
pub mod certificates;
pub mod consistency_store;
pub mod errors;
mod event_correlator;
pub mod event_recorder;
pub mod event_series_recorder;
pub mod expectations;
mod indexer;
pub mod informer;
pub mod leader_election;
mod leader_fence;
mod lru_map;
pub mod metrics;
pub mod node_affinity;
mod queue_metrics;
mod rate_limiter;
mod raw_object;
pub mod service_account_client;
pub mod tolerations;
pub mod transport;
mod unmanaged_object;
pub mod work_queue;

pub use cached_view::CachedView;
pub use consistency_store::{CONSISTENCY_RECHECK, ConsistencyStore};
pub use errors::ApiErrorExt;
pub use event_recorder::EventRecorder;
pub use event_series_recorder::{EventSeriesRecorder, NewEvent};
pub use expectations::ControllerExpectations;
pub use indexer::ResourceEvent;
pub use informer::{SharedInformer, SharedInformerFactory};
pub use leader_election::{LeaderElectionConfig, LeaderElector};
pub use leader_fence::{LeaderFence, NotLeaderError};
pub use panics;
pub use rate_limiter::BackoffBounds;
pub use work_queue::{RequeueAction, WorkQueue};
