//! The scheduler: assigns pending pods to nodes, as upstream's scheduling framework does.
//!
//! Pods wait in the [`queue`]; nodes and their pods are in the [`cache`], from which every [`scheduling_cycle`] gets a
//! [`snapshot`]. The plug-ins of the pod's profile ([`framework`], [`plugins`]) filter and score the nodes of a
//! [`node_search`]. Binding runs in the background ([`binding_cycle`]); until it is observed, the cache assumes it. A pod that
//! fits nowhere goes back to the queue ([`failure`]), possibly after a [`preemption`].

mod binding_cycle;
mod cache;
mod candidate;
pub mod config;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod differential_objects;
mod event_handlers;
mod extender;
mod failure;
mod framework;
mod handle;
mod intern;
mod metrics;
mod node_search;
mod node_tree;
mod objects;
mod plugins;
mod pod_group_status;
mod pod_groups;
mod pod_status;
mod preemption;
mod queue;
mod scheduling_cycle;
mod snapshot;
mod views;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use client::{EventSeriesRecorder, SharedInformer, SharedInformerFactory};
use futures::future::BoxFuture;
use kube::{Api, Client, runtime::watcher};
use tokio_util::sync::CancellationToken;

use self::{
    config::{ConfigError, SchedulerConfiguration, SchedulerProfile, feature_gates::SchedulerFeatures},
    event_handlers::EventHandlers,
    extender::Extenders,
    framework::{ExtensionPoint, Framework, extension_points::Plugin},
    handle::SchedulerHandle,
    objects::ClusterObjects,
    plugins::{new_plugin, priority_sort::PrioritySort},
    queue::{QueueBindings, QueueDurations, SchedulingQueue},
    scheduling_cycle::SchedulingLoop,
    views::pod_info::PodInfo,
};

/// Interval of the checks for pods whose back-off is over.
const BACKOFF_FLUSH: Duration = Duration::from_secs(1);
/// Interval of the checks for pods that are unschedulable for too long.
const UNSCHEDULABLE_FLUSH: Duration = Duration::from_secs(30);

/// Options of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Profiles, plug-ins and extenders.
    pub configuration: SchedulerConfiguration,
    /// Features that are on.
    pub features: SchedulerFeatures,
    /// The longest stay of a pod in the unschedulable pool.
    pub max_in_unschedulable: Duration,
    /// The host, for the reporting instance of events.
    pub host: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            configuration: SchedulerConfiguration::default(),
            features: SchedulerFeatures::default(),
            max_in_unschedulable: QueueDurations::default().max_in_unschedulable,
            host: String::new(),
        }
    }
}

/// Schedules pods until `shutdown`.
///
/// The future is boxed, so that this crate and not its caller compiles the scheduler.
pub fn run_scheduler(
    client: Client,
    options: SchedulerOptions,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), ConfigError>> {
    Box::pin(async move {
        let scheduler = Scheduler::new(client, options, shutdown)?;
        scheduler.run().await;
        Ok(())
    })
}

/// Renders the scheduler's metrics in Prometheus text format.
pub fn render_metrics() -> String {
    metrics::METRICS.render()
}

static KEEPS_OBJECTS: AtomicBool = AtomicBool::new(false);

/// Whether pods and nodes keep their whole objects, which extenders are sent.
fn keeps_objects() -> bool {
    KEEPS_OBJECTS.load(Ordering::Relaxed)
}

struct Scheduler {
    handle: Arc<SchedulerHandle>,
    frameworks: HashMap<Arc<str>, Arc<Framework>>,
    percentage_of_nodes_to_score: i32,
    shutdown: CancellationToken,
}

impl Scheduler {
    fn new(client: Client, options: SchedulerOptions, shutdown: CancellationToken) -> Result<Self, ConfigError> {
        let SchedulerOptions { mut configuration, features, max_in_unschedulable, host } = options;
        configuration.add_gated_plugins(&features);
        let extenders = Extenders::new(&configuration.extenders)?;
        KEEPS_OBJECTS.fetch_or(!extenders.is_empty(), Ordering::Relaxed);
        let informers = SharedInformerFactory::new(client.clone(), shutdown.clone());
        // Pods that have ended occupy nothing.
        let running = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let pods = SharedInformer::<PodInfo>::start(Api::all(client.clone()), running, shutdown.clone());
        let objects = ClusterObjects::new(&informers, &features);
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let durations = QueueDurations {
            initial_backoff: seconds(configuration.pod_initial_backoff_seconds),
            max_backoff: seconds(configuration.pod_max_backoff_seconds),
            max_in_unschedulable,
        };
        let mut queue = SchedulingQueue::new(Arc::new(PrioritySort), durations);
        queue.pops_from_backoff = features.is_enabled("SchedulerPopFromBackoffQ");
        queue.schedules_pod_groups = features.is_enabled("GenericWorkload");
        let nodes = informers.informer_for();
        let handle = Arc::new(SchedulerHandle::new(client, (pods, nodes, objects), queue, extenders, features));
        let ignored = configuration.ignored_resources();
        let mut frameworks = HashMap::new();
        for profile in &configuration.profiles {
            let framework = new_framework(profile, &handle, &host, &ignored)?;
            frameworks.insert(framework.profile_name.clone(), Arc::new(framework));
        }
        let recorders = frameworks.iter().map(|(name, framework)| (name.clone(), framework.recorder.clone()));
        handle.set_recorders(recorders.collect());
        handle.queue.bind(QueueBindings {
            frameworks: frameworks.values().cloned().collect(),
            pods: Some(handle.pods.clone()),
        });
        let percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score.unwrap_or(0);
        Ok(Self { handle, frameworks, percentage_of_nodes_to_score, shutdown })
    }

    async fn run(self) {
        let Self { handle, frameworks, percentage_of_nodes_to_score, shutdown } = self;
        let profiles = frameworks.keys().cloned().collect();
        let handlers = EventHandlers { handle: handle.clone(), profiles, shutdown: shutdown.clone() };
        let synced = async {
            handle.objects.wait_for_sync().await;
            Arc::new(handlers).add_all();
            handle.nodes.wait_for_cache_sync().await;
            handle.pods.wait_for_cache_sync().await;
        };
        if shutdown.run_until_cancelled(synced).await.is_none() {
            return;
        }
        let scheduling = SchedulingLoop::new(handle.clone(), frameworks, percentage_of_nodes_to_score);
        let thread = std::thread::Builder::new().name("scheduling".into()).spawn(move || scheduling.run());
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                tracing::error!(%error, "scheduler: no thread for the scheduling loop");
                return;
            }
        };
        shutdown.run_until_cancelled(flush_queue(&handle)).await;
        handle.queue.close();
        // The thread ends with its current cycle.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}

/// Moves pods whose time has come, for ever.
async fn flush_queue(handle: &SchedulerHandle) {
    let mut backoff = tokio::time::interval(BACKOFF_FLUSH);
    let mut unschedulable = tokio::time::interval(UNSCHEDULABLE_FLUSH);
    loop {
        tokio::select! {
            _ = backoff.tick() => handle.queue.flush_backoff(),
            _ = unschedulable.tick() => handle.queue.flush_unschedulable(),
        }
    }
}

/// Makes the plug-ins of a profile and puts them at their points.
fn new_framework(
    profile: &SchedulerProfile,
    handle: &Arc<SchedulerHandle>,
    host: &str,
    ignored_resources: &[String],
) -> Result<Framework, ConfigError> {
    let mut made: HashMap<String, Arc<dyn Plugin>> = HashMap::new();
    let gated = ["NodeDeclaredFeatures", "GangScheduling"];
    let is_left_out = |name: &str| gated.contains(&name) && !handle.features.is_enabled(name);
    let named = ExtensionPoint::ALL.iter().flat_map(|point| &profile.plugins.at(*point).enabled);
    for plugin in profile.plugins.merged_defaults().iter().chain(named).filter(|plugin| !is_left_out(&plugin.name)) {
        if !made.contains_key(&plugin.name) {
            let new = new_plugin(&plugin.name, profile, handle, ignored_resources)?;
            made.insert(plugin.name.clone(), new);
        }
    }
    let mut points = HashMap::new();
    for point in ExtensionPoint::ALL {
        let extends = |name: &str| made.get(name).is_some_and(|plugin| point.is_extended_by(plugin.as_ref()));
        let plugins = profile.plugins.plugins_at(point, extends)?;
        let plugins = plugins.into_iter().filter_map(|plugin| Some((made.get(&plugin.name)?.clone(), plugin.weight)));
        points.insert(point, plugins.collect::<Vec<_>>());
    }
    let name = profile.name();
    let count = |point: ExtensionPoint| points.get(&point).map_or(0, Vec::len);
    match count(ExtensionPoint::QueueSort) {
        1 => {}
        0 => {
            let message = format!("no queue sort plugin is enabled for profile with scheduler name {name:?}");
            return Err(ConfigError::Invalid(message));
        }
        several => {
            let message = format!(
                "only one queue sort plugin required for profile with scheduler name {name:?}, but got {several}"
            );
            return Err(ConfigError::Invalid(message));
        }
    }
    if count(ExtensionPoint::Bind) == 0 {
        let message = format!("at least one bind plugin is needed for profile with scheduler name {name:?}");
        return Err(ConfigError::Invalid(message));
    }
    let recorder = EventSeriesRecorder::new(handle.client.clone(), name, host);
    Ok(Framework::new(name, profile.percentage_of_nodes_to_score, recorder, points))
}
