//! The right state at the end.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::Pod,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    fake_kubelet::FakeKubelet,
    workloads::{COMPLETIONS, HISTORY, NAMESPACE, NEW_IMAGE, REPLICAS, Workload, WorkloadKind},
};

/// All objects of the namespace.
struct Lists {
    deployments: HashMap<String, Deployment>,
    replica_sets: HashMap<String, ReplicaSet>,
    stateful_sets: HashMap<String, StatefulSet>,
    jobs: HashMap<String, Job>,
    cron_jobs: HashMap<String, CronJob>,
    revisions: HashMap<String, ControllerRevision>,
    pods: HashMap<String, Pod>,
}

/// Says what is not yet as it must be.
pub async fn check(client: &Client, workloads: &[Workload], kubelet: &FakeKubelet) -> Result<(), String> {
    let lists = Lists {
        deployments: list(client).await,
        replica_sets: list(client).await,
        stateful_sets: list(client).await,
        jobs: list(client).await,
        cron_jobs: list(client).await,
        revisions: list(client).await,
        pods: list(client).await,
    };
    for workload in workloads {
        lists.check_workload(workload, kubelet).map_err(|error| format!("{} {workload:?}", error))?;
    }
    lists.check_owners()?;
    lists.check_cron_jobs()
}

async fn list<K>(client: &Client) -> HashMap<String, K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let objects = api.list(&ListParams::default()).await.expect("a list");
    objects.items.into_iter().map(|object| (object.name_any(), object)).collect()
}

fn expect(is_so: bool, what: &str, found: &impl std::fmt::Debug) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("{what}: {found:?}")) }
}

impl Lists {
    fn check_workload(&self, workload: &Workload, kubelet: &FakeKubelet) -> Result<(), String> {
        let name = workload.name.as_str();
        let exists = match workload.kind {
            WorkloadKind::Deployment => self.deployments.contains_key(name),
            WorkloadKind::StatefulSet => self.stateful_sets.contains_key(name),
            WorkloadKind::Job => self.jobs.contains_key(name),
            WorkloadKind::CronJob => self.cron_jobs.contains_key(name),
        };
        expect(exists != workload.deleted, "existence", &exists)?;
        if workload.deleted {
            let left: Vec<&String> = self
                .pods
                .iter()
                .filter(|(_, pod)| pod.labels().get("app").is_some_and(|app| app == name))
                .map(|(name, _)| name)
                .collect();
            return expect(left.is_empty(), "pods of a deleted object", &left);
        }
        match workload.kind {
            WorkloadKind::Deployment => self.check_deployment(&self.deployments[name]),
            WorkloadKind::StatefulSet => self.check_stateful_set(&self.stateful_sets[name]),
            WorkloadKind::Job => self.check_job(&self.jobs[name], workload, kubelet),
            WorkloadKind::CronJob => Ok(()),
        }
    }

    fn check_deployment(&self, deployment: &Deployment) -> Result<(), String> {
        let status = deployment.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
        expect(counts == [Some(REPLICAS); 4], "status", &status)?;
        expect(status.observed_generation == deployment.metadata.generation, "generation", &status)?;
        let mut pods = 0;
        for set in self.replica_sets.values().filter(|set| is_owned(*set, deployment)) {
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
            pods += self.running_pods(set)?.len();
            expect(
                set.status.as_ref().map(|status| status.replicas) == replicas,
                "status of a ReplicaSet",
                &set.status,
            )?;
        }
        expect(pods == REPLICAS as usize, "pods", &pods)
    }

    fn check_stateful_set(&self, set: &StatefulSet) -> Result<(), String> {
        let status = set.status.clone().unwrap_or_default();
        let counts = [Some(status.replicas), status.current_replicas, status.updated_replicas, status.ready_replicas];
        expect(counts == [Some(REPLICAS); 4], "status", &status)?;
        expect(status.current_revision == status.update_revision, "revisions", &status)?;
        let names = self.running_pods(set)?;
        let wanted = (0..REPLICAS).map(|ordinal| format!("{}-{ordinal}", set.name_any())).collect();
        expect(names == wanted, "pods", &names)
    }

    /// The names of the pods of a controller, all of which must be new and run.
    fn running_pods<K: Resource>(&self, owner: &K) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| is_owned(*pod, owner)) {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let runs = phase == Some("Running") && pod.metadata.deletion_timestamp.is_none();
            let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
            expect(runs && image == Some(NEW_IMAGE), "a pod does not run the new image", &pod.metadata.name)?;
            names.insert(pod.name_any());
        }
        Ok(names)
    }

    /// Every pod that succeeded or failed is counted, and counted once.
    fn check_job(&self, job: &Job, workload: &Workload, kubelet: &FakeKubelet) -> Result<(), String> {
        let status = job.status.clone().unwrap_or_default();
        let conditions = status.conditions.iter().flatten();
        let is_complete =
            conditions.clone().any(|condition| condition.type_ == "Complete" && condition.status == "True");
        expect(is_complete, "completion", &status)?;
        let (succeeded, failed) = kubelet.job_outcomes(&job.uid().unwrap_or_default());
        let counted = (status.succeeded.unwrap_or(0) as usize, status.failed.unwrap_or(0) as usize);
        expect(counted == (succeeded, failed), "pods that ended and are counted", &(succeeded, failed, &status))?;
        expect(succeeded == COMPLETIONS as usize, "completions", &succeeded)?;
        expect(failed as u64 == workload.failures, "failures", &failed)?;
        if workload.variant {
            expect(status.completed_indexes.as_deref() == Some("0-3"), "indexes", &status)?;
        }
        let uncounted = json!(status.uncounted_terminated_pods);
        let is_empty = uncounted
            .as_object()
            .is_none_or(|lists| lists.values().all(|list| list.as_array().is_none_or(Vec::is_empty)));
        expect(is_empty && status.active.unwrap_or(0) == 0, "what is left to count", &uncounted)?;
        let held = self.pods.values().find(|pod| is_owned(*pod, job) && !pod.finalizers().is_empty());
        expect(held.is_none(), "a pod keeps its finalizer", &held.map(ResourceExt::name_any))
    }

    /// Whatever a controller made has an owner that exists.
    fn check_owners(&self) -> Result<(), String> {
        let mut objects: Vec<Value> = Vec::new();
        self.pods.values().for_each(|object| objects.push(json!(object.metadata)));
        self.replica_sets.values().for_each(|object| objects.push(json!(object.metadata)));
        self.revisions.values().for_each(|object| objects.push(json!(object.metadata)));
        let mut uids: HashSet<String> = objects.iter().map(|meta| text(&meta["uid"])).collect();
        uids.extend(self.deployments.values().filter_map(ResourceExt::uid));
        uids.extend(self.stateful_sets.values().filter_map(ResourceExt::uid));
        uids.extend(self.cron_jobs.values().filter_map(ResourceExt::uid));
        uids.extend(self.jobs.values().filter_map(ResourceExt::uid));
        // Jobs of nobody are those of the run itself.
        objects
            .extend(self.jobs.values().filter(|job| !job.owner_references().is_empty()).map(|job| json!(job.metadata)));
        let orphan = objects.iter().find(|meta| {
            let owners = meta["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.is_empty() || owners.iter().any(|owner| !uids.contains(&text(&owner["uid"])))
        });
        expect(orphan.is_none(), "an orphan", &orphan.map(|meta| meta["name"].clone()))
    }

    /// A scheduled time has one Job at most, finished Jobs beyond the limit are deleted, and what is active exists.
    fn check_cron_jobs(&self) -> Result<(), String> {
        for cron_job in self.cron_jobs.values() {
            let owned: Vec<&Job> = self.jobs.values().filter(|job| is_owned(*job, cron_job)).collect();
            let times: HashSet<_> = owned
                .iter()
                .map(|job| job.annotations().get("batch.kubernetes.io/cronjob-scheduled-timestamp"))
                .collect();
            expect(times.len() == owned.len(), "two Jobs of one time", &times)?;
            let is_finished = |job: &&&Job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
            let finished = owned.iter().filter(is_finished).count();
            expect(finished <= HISTORY as usize, "finished Jobs", &finished)?;
            let active = cron_job.status.iter().flat_map(|status| status.active.iter().flatten());
            let dangling = active
                .filter_map(|reference| reference.name.clone())
                .find(|name| !owned.iter().any(|job| job.name_any() == *name && !is_finished(&job)));
            expect(dangling.is_none(), "an active Job that is not", &dangling)?;
        }
        Ok(())
    }
}

fn is_owned<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    object.owner_references().iter().any(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
