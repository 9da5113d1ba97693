//! The availability controller: keeps the condition `Available` of every API service. Servers are checked on changes
//! of their service and endpoints and periodically, with exponential back-off after failures.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock,
    loopback::{LoopbackClient, ObjectKey},
    services::{EndpointSlice, ServiceEntry},
};
use serde_json::json;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    Aggregator, ApiService, OWN_GROUP, api_service_index::AvailableCondition, check, discovery_cache::DiscoveryClient,
    watch_resource,
};

/// Time between periodic checks.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// The first back-off after a failure; doubles up to the period.
const INITIAL_BACKOFF: Duration = Duration::from_millis(5);

/// Runs the availability controller until `shutdown`.
pub async fn run_availability(aggregator: Arc<Aggregator>, shutdown: CancellationToken) {
    let mut keeper = AvailabilityController { aggregator, workers: HashMap::new(), tasks: JoinSet::new() };
    shutdown.run_until_cancelled(keeper.run_controller()).await;
}

struct AvailabilityController {
    aggregator: Arc<Aggregator>,
    /// The workers by `APIService` name.
    workers: HashMap<String, ServiceWorker>,
    tasks: JoinSet<()>,
}

/// The worker of one server and the state that it was last woken for.
struct ServiceWorker {
    api: Arc<ApiService>,
    endpoints: Option<(Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>)>,
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl AvailabilityController {
    async fn run_controller(&mut self) {
        let cache = self.aggregator.cache.clone();
        let (Ok(mut apis), Ok(mut services), Ok(mut slices)) = (
            watch_resource(&cache, OWN_GROUP, "apiservices"),
            watch_resource(&cache, "", "services"),
            watch_resource(&cache, "discovery.k8s.io", "endpointslices"),
        ) else {
            return tracing::error!(
                "aggregator: cannot watch API services, services and endpoint slices, the availability controller stops"
            );
        };
        loop {
            let again = self.sync_services().await;
            let remotes = !self.workers.is_empty();
            tokio::select! {
                () = apis.wait_for_change() => {}
                () = services.wait_for_change(), if remotes => {}
                () = slices.wait_for_change(), if remotes => {}
                () = time::sleep(Duration::from_secs(1)), if again => {}
            }
            // Workers end with their API service.
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Starts, wakes and stops workers; returns whether a write failed and must be retried.
    async fn sync_services(&mut self) -> bool {
        let apis = self.aggregator.list_services();
        let said = &self.aggregator.discovery_cache;
        self.workers.retain(|name, kept| {
            let stays = apis.iter().any(|api| api.name == *name && api.remote.is_some());
            if !stays {
                kept.task.abort();
                said.remove_service(name);
            }
            stays
        });
        let mut again = false;
        for api in apis {
            if api.remote.is_some() {
                self.wake_worker(&api);
            } else if api.condition != check::local_condition()
                && let Err(status) = write_condition(&self.aggregator, &api.name, &check::local_condition()).await
            {
                tracing::debug!(
                    api = api.name,
                    why = status.message,
                    "aggregator: writing the condition Available failed, retrying"
                );
                again = true;
            }
        }
        again
    }

    /// Wakes the worker of a server if its API service, service or endpoints changed.
    fn wake_worker(&mut self, api: &Arc<ApiService>) {
        let place = api.remote.as_ref().map(|remote| &remote.service_port);
        let services = self.aggregator.storage.service_resolver();
        let behind = place.and_then(|place| services.find_service(&place.namespace, &place.name));
        if let Some(kept) = self.workers.get_mut(&api.name) {
            if !Arc::ptr_eq(&kept.api, api) || !same_endpoints(kept.endpoints.as_ref(), behind.as_ref()) {
                (kept.api, kept.endpoints) = (api.clone(), behind);
                kept.wake.notify_one();
            }
            return;
        }
        let wake = Arc::new(Notify::new());
        let task = self.tasks.spawn(run_worker(self.aggregator.clone(), api.name.clone(), wake.clone()));
        self.workers.insert(api.name.clone(), ServiceWorker { api: api.clone(), endpoints: behind, wake, task });
    }
}

type ServiceEndpoints = (Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>);

fn same_endpoints(one: Option<&ServiceEndpoints>, other: Option<&ServiceEndpoints>) -> bool {
    match (one, other) {
        (Some((service, slices)), Some((other, others))) => {
            Arc::ptr_eq(service, other)
                && slices.len() == others.len()
                && slices.iter().zip(others).all(|(slice, other)| Arc::ptr_eq(slice, other))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Checks one server until its API service is deleted.
async fn run_worker(aggregator: Arc<Aggregator>, name: String, wake: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let Some(api) = aggregator.get_service(&name) else { return };
        let Some(remote) = &api.remote else { return };
        let found = check::check_server(aggregator.storage.service_resolver(), &api, remote).await;
        let asked = DiscoveryClient { services: aggregator.storage.service_resolver(), api: &api, remote };
        let said = &aggregator.discovery_cache;
        let available = found.condition.is_available();
        // Resources are known before the condition says that the server is available.
        let words = said.set_resources(&name, if available { asked.fetch_resources().await } else { None });
        let mut again = found.retry;
        if found.condition != api.condition
            && let Err(status) = write_condition(&aggregator, &name, &found.condition).await
        {
            tracing::debug!(
                api = name,
                why = status.message,
                "aggregator: writing the condition Available failed, retrying"
            );
            again = true;
        }
        if !available && api.condition.is_available() {
            aggregator.unavailable_total.add(&(name.clone(), found.condition.reason.clone()), 1);
        }
        if available {
            said.set_documents(&name, asked.fetch_openapi(&words).await);
        }
        failures = if again { failures + 1 } else { 0 };
        let pause = if again { (INITIAL_BACKOFF * (1 << failures.min(16))).min(CHECK_PERIOD) } else { CHECK_PERIOD };
        tokio::select! {
            () = wake.notified() => {}
            () = time::sleep(pause) => {}
        }
    }
}

/// Writes the condition `Available`; its transition time changes only with its status.
async fn write_condition(aggregator: &Aggregator, name: &str, condition: &AvailableCondition) -> Result<(), Status> {
    let system = LoopbackClient::new(&*aggregator.storage);
    let place = ObjectKey { resource: super::api_service_resource()?, namespace: "", name };
    let Some(mut object) = system.read_object(place).await? else { return Ok(()) };
    let AvailableCondition { status, reason, message } = condition;
    let conditions = meta::list_at(&object, &["status", "conditions"]);
    let (before, mut after): (Vec<Value>, Vec<Value>) =
        conditions.iter().cloned().partition(|one| one["type"] == "Available");
    let since = before.first().filter(|before| before["status"] == status.as_str());
    let since = since.map(|before| before["lastTransitionTime"].clone()).filter(|since| !since.is_null());
    after.insert(
        0,
        json!({
            "type": "Available", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| clock::now_in_seconds().into()),
        }),
    );
    tracing::info!(api = name, status, reason, why = message, "aggregator: APIService availability changed");
    meta::field_mut(&mut object, "status").insert("conditions".into(), after.into());
    system.update_status(place, &object).await.map(drop)
}
