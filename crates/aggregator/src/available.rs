//! Keeps the condition `Available` of every API service: what changes is looked at when it changes, and a server that may
//! come and go unseen every half minute; one that is away more often at first, and ever more seldom.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock,
    loopback::{LoopbackClient, ObjectKey},
    services::{ServiceEntry, EndpointSlice},
};
use serde_json::json;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{Aggregator, Api, OWN_GROUP, check, discovery_cache::Asked, follow, view::Condition};

/// How often a server is asked that nobody said anything new about.
const PERIOD: Duration = Duration::from_secs(30);
/// The first pause after a failure; each next one is twice as long, up to the period.
const PAUSE: Duration = Duration::from_millis(5);

/// Keeps the conditions until `shutdown`.
pub async fn run(aggregator: Arc<Aggregator>, shutdown: CancellationToken) {
    let mut keeper = Keeper { aggregator, kept: HashMap::new(), tasks: JoinSet::new() };
    shutdown.run_until_cancelled(keeper.work()).await;
}

struct Keeper {
    aggregator: Arc<Aggregator>,
    /// The servers that are looked after, by the name of their API service.
    kept: HashMap<String, Kept>,
    tasks: JoinSet<()>,
}

/// A server that is looked after, and what was known when that was last asked for.
struct Kept {
    api: Arc<Api>,
    behind: Option<(Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>)>,
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl Keeper {
    async fn work(&mut self) {
        let cache = self.aggregator.cache.clone();
        let (Ok(mut apis), Ok(mut services), Ok(mut slices)) = (
            follow(&cache, OWN_GROUP, "apiservices"),
            follow(&cache, "", "services"),
            follow(&cache, "discovery.k8s.io", "endpointslices"),
        ) else {
            return tracing::error!("what the availability of API services depends on cannot be followed");
        };
        loop {
            let again = self.look().await;
            let remotes = !self.kept.is_empty();
            tokio::select! {
                () = apis.wait_for_change() => {}
                () = services.wait_for_change(), if remotes => {}
                () = slices.wait_for_change(), if remotes => {}
                () = time::sleep(Duration::from_secs(1)), if again => {}
            }
            // Tasks end when their service does.
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Sees to it that each service is looked after; whether that failed and must be tried again.
    async fn look(&mut self) -> bool {
        let apis = self.aggregator.all();
        let said = &self.aggregator.said;
        self.kept.retain(|name, kept| {
            let stays = apis.iter().any(|api| api.name == *name && api.remote.is_some());
            if !stays {
                kept.task.abort();
                said.forget(name);
            }
            stays
        });
        let mut again = false;
        for api in apis {
            if api.remote.is_some() {
                self.wake(&api);
            } else if api.condition != check::local()
                && let Err(status) = write(&self.aggregator, &api.name, &check::local()).await
            {
                tracing::debug!(api = api.name, why = status.message, "cannot say that an API is available");
                again = true;
            }
        }
        again
    }

    /// Has a server looked at if anything is new.
    fn wake(&mut self, api: &Arc<Api>) {
        let place = api.remote.as_ref().map(|remote| &remote.place);
        let services = self.aggregator.storage.service_resolver();
        let behind = place.and_then(|place| services.find_service(&place.namespace, &place.name));
        if let Some(kept) = self.kept.get_mut(&api.name) {
            if !Arc::ptr_eq(&kept.api, api) || !same(kept.behind.as_ref(), behind.as_ref()) {
                (kept.api, kept.behind) = (api.clone(), behind);
                kept.wake.notify_one();
            }
            return;
        }
        let wake = Arc::new(Notify::new());
        let task = self.tasks.spawn(keep(self.aggregator.clone(), api.name.clone(), wake.clone()));
        self.kept.insert(api.name.clone(), Kept { api: api.clone(), behind, wake, task });
    }
}

type Behind = (Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>);

fn same(one: Option<&Behind>, other: Option<&Behind>) -> bool {
    match (one, other) {
        (Some((service, slices)), Some((other, others))) => {
            Arc::ptr_eq(service, other)
                && slices.len() == others.len()
                && slices.iter().zip(others).all(|(slice, other)| Arc::ptr_eq(slice, other))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Looks after one server for as long as its service is there.
async fn keep(aggregator: Arc<Aggregator>, name: String, wake: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let Some(api) = aggregator.get(&name) else { return };
        let Some(remote) = &api.remote else { return };
        let found = check::look(aggregator.storage.service_resolver(), &api, remote).await;
        let asked = Asked { services: aggregator.storage.service_resolver(), api: &api, remote };
        let said = &aggregator.said;
        let available = found.condition.is_available();
        // Clients that hear that it is there find its resources.
        let words = said.resources(&name, if available { asked.resources().await } else { None });
        let mut again = found.again;
        if found.condition != api.condition
            && let Err(status) = write(&aggregator, &name, &found.condition).await
        {
            tracing::debug!(api = name, why = status.message, "cannot say whether an API is available");
            again = true;
        }
        if !available && api.condition.is_available() {
            aggregator.lost.add(&(name.clone(), found.condition.reason.clone()), 1);
        }
        if available {
            said.note(&name, asked.described(&words).await);
        }
        failures = if again { failures + 1 } else { 0 };
        let pause = if again { (PAUSE * (1 << failures.min(16))).min(PERIOD) } else { PERIOD };
        tokio::select! {
            () = wake.notified() => {}
            () = time::sleep(pause) => {}
        }
    }
}

/// Writes a condition down. Its time changes with its status only.
async fn write(aggregator: &Aggregator, name: &str, condition: &Condition) -> Result<(), Status> {
    let system = LoopbackClient::new(&*aggregator.storage);
    let place = ObjectKey { resource: super::services()?, namespace: "", name };
    let Some(mut object) = system.read_object(place).await? else { return Ok(()) };
    let Condition { status, reason, message } = condition;
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
    tracing::info!(api = name, status, reason, why = message, "the availability of an API service changed");
    meta::field_mut(&mut object, "status").insert("conditions".into(), after.into());
    system.update_status(place, &object).await.map(drop)
}
