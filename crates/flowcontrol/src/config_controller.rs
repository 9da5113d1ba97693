//! Keeps the priority levels in step with their objects, and lends idle seats periodically.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use api::Value;
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};
use tokio_util::sync::CancellationToken;

use super::{ControllerState, FlowController, config::FlowControlConfig, priority_level::PriorityLevel};

/// The flow-control resources.
pub const RESOURCES: [&str; 2] = ["prioritylevelconfigurations", "flowschemas"];
/// Their API group.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const LENDING: Duration = Duration::from_secs(10);

/// The indexed objects and the state built from them.
pub struct ConfigIndex {
    schemas: BTreeMap<String, Value>,
    levels: BTreeMap<String, Value>,
    /// The state after the last change.
    pub state: Arc<ControllerState>,
    /// Seats of all levels together.
    seats: usize,
}

impl ConfigIndex {
    /// Without objects, requests are not limited.
    pub fn new(seats: usize) -> Self {
        let state = Arc::new(ControllerState { config: FlowControlConfig::default(), levels: HashMap::new() });
        Self { schemas: BTreeMap::new(), levels: BTreeMap::new(), state, seats }
    }

    fn objects_mut(&mut self, place: ObjectKey<'_>) -> &mut BTreeMap<String, Value> {
        if place.resource.name == "flowschemas" { &mut self.schemas } else { &mut self.levels }
    }
}

impl Indexer for ConfigIndex {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        self.objects_mut(place).insert(place.name.to_owned(), object.clone());
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.objects_mut(place).remove(place.name);
    }

    fn clear(&mut self) {
        self.schemas.clear();
        self.levels.clear();
    }

    /// Levels keep their requests and get new shares.
    fn rebuild(&mut self) {
        let config = FlowControlConfig::from_objects(self.schemas.values(), self.levels.values());
        let shares: u64 = config.levels.values().map(|level| level.shares).sum();
        let mut levels = HashMap::new();
        for (name, wanted) in &config.levels {
            let nominal = (self.seats as u64 * wanted.shares).div_ceil(shares.max(1));
            let level = self.state.levels.get(name).cloned().unwrap_or_else(|| Arc::new(PriorityLevel::new(name)));
            level.apply_config(wanted, usize::try_from(nominal).unwrap_or(usize::MAX), self.seats);
            levels.insert(name.clone(), level);
        }
        self.state = Arc::new(ControllerState { config, levels });
    }
}

/// Lends idle seats until `shutdown`.
pub async fn run_seat_borrowing(flow: Arc<FlowController>, shutdown: CancellationToken) {
    while shutdown.run_until_cancelled(tokio::time::sleep(LENDING)).await.is_some() {
        flow.update_borrowing();
    }
}
