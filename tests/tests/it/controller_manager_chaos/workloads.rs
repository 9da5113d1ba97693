//! The objects: how each is created, updated and deleted.

use std::{fmt::Debug, time::Duration};

use ferry_tests::EVENTUAL_TIMEOUT;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Dice, fake_kubelet::FAILURES};

/// The namespace of the workloads.
pub const NAMESPACE: &str = "chaos";
/// Pods of a Deployment or StatefulSet at the end.
pub const REPLICAS: i32 = 3;
/// Completions of a Job.
pub const COMPLETIONS: i32 = 4;
/// The image at the end.
pub const NEW_IMAGE: &str = "example.com/app:2";
/// The most finished Jobs of a CronJob at the end.
pub const HISTORY: i32 = 1;

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    Job,
    CronJob,
}

/// An object of the run.
#[derive(Clone, Debug)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub name: String,
    /// A StatefulSet is parallel, a Job indexed.
    pub variant: bool,
    /// It is deleted at the end of its life.
    pub deleted: bool,
    /// Pods that fail.
    pub failures: u64,
}

/// Creates the namespace, and waits until pods can be created in it.
pub async fn wait_for_service_account(client: &Client) {
    let namespace = object(&json!({"metadata": {"name": NAMESPACE}}));
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("a namespace");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let deadline = Instant::now() + EVENTUAL_TIMEOUT;
    while accounts.get_opt("default").await.expect("an answer").is_none() {
        assert!(Instant::now() < deadline, "no service account");
        sleep(Duration::from_millis(100)).await;
    }
}

fn object<K: serde::de::DeserializeOwned>(value: &Value) -> K {
    K::deserialize(value).expect("an object")
}

impl Workload {
    /// The workload of a number.
    pub fn new(number: usize) -> Self {
        use WorkloadKind::{CronJob, Deployment, Job, StatefulSet};
        let kind = [Deployment, StatefulSet, Job, CronJob][number % 4];
        let round = number / 4;
        Self {
            kind,
            name: format!("object-{number}"),
            variant: round % 2 == 1,
            deleted: round % 3 == 2,
            failures: u64::from(kind == Job && round % 4 == 1),
        }
    }

    /// Creates, updates and perhaps deletes it within a time.
    pub async fn run(self, client: Client, dice: Dice, span: Duration) -> Self {
        match self.kind {
            WorkloadKind::Deployment => self.live::<Deployment>(client, dice, span).await,
            WorkloadKind::StatefulSet => self.live::<StatefulSet>(client, dice, span).await,
            WorkloadKind::Job => self.live::<Job>(client, dice, span).await,
            WorkloadKind::CronJob => self.live::<CronJob>(client, dice, span).await,
        }
        self
    }

    async fn live<K>(&self, client: Client, dice: Dice, span: Duration)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(client, NAMESPACE);
        dice.pause(span / 2).await;
        api.create(&PostParams::default(), &object(&self.manifest())).await.expect("created");
        dice.pause(span / 2).await;
        let patch = Patch::Merge(self.update());
        api.patch(&self.name, &PatchParams::default(), &patch).await.expect("patched");
        if self.deleted {
            dice.pause(span / 2).await;
            let policy = if self.variant { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
            let how = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
            api.delete(&self.name, &how).await.expect("deleted");
        }
    }

    fn manifest(&self) -> Value {
        let (name, image) = (&self.name, "example.com/app:1");
        let template = |policy: &str| {
            json!({"metadata": {"labels": {"app": name}, "annotations": {FAILURES: self.failures.to_string()}},
                "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": image}]}})
        };
        let spec = match self.kind {
            WorkloadKind::Deployment => json!({"replicas": 2, "selector": {"matchLabels": {"app": name}},
                "template": template("Always")}),
            WorkloadKind::StatefulSet => json!({"replicas": 2, "selector": {"matchLabels": {"app": name}},
                "serviceName": name, "podManagementPolicy": if self.variant { "Parallel" } else { "OrderedReady" },
                "template": template("Always")}),
            WorkloadKind::Job => json!({"completions": COMPLETIONS, "parallelism": 1, "suspend": self.variant,
                "completionMode": if self.variant { "Indexed" } else { "NonIndexed" }, "template": template("Never")}),
            WorkloadKind::CronJob => json!({"schedule": "* * * * *", "jobTemplate": {"spec": {
                "completions": 1, "template": template("Never")}}}),
        };
        json!({"metadata": {"name": name}, "spec": spec})
    }

    /// The merge patch that updates it.
    fn update(&self) -> Value {
        let image = json!({"spec": {"containers": [{"name": "c", "image": NEW_IMAGE}]}});
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
                json!({"spec": {"replicas": REPLICAS, "template": image}})
            }
            WorkloadKind::Job => json!({"spec": {"parallelism": 2, "suspend": false}}),
            WorkloadKind::CronJob => json!({"spec": {"successfulJobsHistoryLimit": HISTORY}}),
        }
    }
}
