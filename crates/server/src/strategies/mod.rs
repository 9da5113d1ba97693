//! What is particular to a resource. Every method has a default; a strategy holds only the differences.

mod api_service;
mod event;
mod job;
mod namespace;
mod pod;
mod service;
mod workload;

use api::{Value, schema::Resource};

use crate::allocate::Allocator;

/// How one resource differs from the rest.
pub trait Strategy: Sync {
    /// Called once for a new object, after defaults and before validation; may change it.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Called for every change, before validation; may change the new object.
    fn prepare_update(&self, _object: &mut Value, _current: &Value) {}

    /// Whether the status of a new object is the client's to set.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Whether a change counts as a new generation. By default: whatever is not metadata or status.
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
    }

    /// How long a deletion waits for whoever runs the object.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> i64 {
        0
    }

    /// Why the object of that name must not be deleted, if it must not.
    fn refuses_deletion(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Whether something besides finalizers keeps the object from being removed.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Called when a deletion begins and has to wait; may change the object.
    fn begin_deletion(&self, _object: &mut Value) {}

    /// Who hands out what an object may have only once; `None`: it needs nothing of that kind.
    fn allocator(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Whether an object goes away by itself some time after its last write.
    fn is_ephemeral(&self) -> bool {
        false
    }
}

fn specification(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status")).collect()
}

struct Plain;
impl Strategy for Plain {}

const STRATEGIES: &[(&str, &str, &dyn Strategy)] = &[
    ("", "pods", &pod::Pod),
    ("", "namespaces", &namespace::Namespace),
    ("", "services", &service::Service),
    ("", "events", &event::Event),
    ("apiregistration.k8s.io", "apiservices", &api_service::ApiService),
    ("scheduling.k8s.io", "priorityclasses", &workload::OneGeneration),
    ("", "nodes", &workload::KeepsStatus),
    ("apps", "deployments", &workload::Deployment),
    ("batch", "jobs", &job::Job),
];

/// The strategy of a resource.
pub fn of(resource: &Resource) -> &'static dyn Strategy {
    let (group, name) = resource.storage();
    STRATEGIES.iter().find(|(g, n, _)| *g == group && *n == name).map_or(&Plain, |(_, _, strategy)| *strategy)
}
