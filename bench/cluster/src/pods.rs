//! Real pods on the real node: how long they take to be Ready, and to be gone.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::{rows, watch};

/// It ends as soon as it is told to, so that what is measured is the cluster.
const IMAGE: &str = "registry.k8s.io/pause:3.10.2";
/// Concurrent requests.
const AT_ONCE: usize = 16;

/// Pods by themselves.
#[derive(clap::Args)]
pub struct PodLoad {
    /// Number of pods
    #[arg(long)]
    count: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// Deployments of three.
#[derive(clap::Args)]
pub struct DeploymentLoad {
    /// Number of runs
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

impl PodLoad {
    pub async fn run(&self, client: &Client) -> anyhow::Result<()> {
        let (mut started, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..self.repeat {
            let (start, end) = self.once(client).await?;
            started.push(start);
            ended.push(end);
        }
        rows::seconds(&format!("start {} pods", self.count), &started);
        rows::seconds(&format!("delete {} pods", self.count), &ended);
        Ok(())
    }

    async fn once(&self, client: &Client) -> anyhow::Result<(Duration, Duration)> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let began = Instant::now();
        let create = async {
            let names = stream::iter(0..self.count);
            let made = names.map(|n| Ok(pod(n))).try_for_each_concurrent(AT_ONCE, |pod| {
                let pods = pods.clone();
                async move { pods.create(&PostParams::default(), &pod?).await.map(drop).map_err(anyhow::Error::from) }
            });
            made.await
        };
        let revision = revision(&pods).await?;
        let ready = watch::until(&pods, SELECTOR, &revision, |seen, _| {
            seen.objects.values().filter(|pod| is_ready(pod)).count() == self.count
        });
        futures::try_join!(create, ready)?;
        let (started, began) = (began.elapsed(), Instant::now());
        let revision = self::revision(&pods).await?;
        let mut left = self.count;
        let gone = watch::until(&pods, SELECTOR, &revision, |seen, changed| {
            let name = changed.and_then(|pod| pod.metadata.name.as_ref());
            left -= usize::from(name.is_some_and(|name| !seen.objects.contains_key(name)));
            left == 0
        });
        let delete = async {
            let one = |n: usize| {
                let pods = pods.clone();
                async move { pods.delete(&name(n), &DeleteParams::default()).await.map(drop).map_err(anyhow::Error::from) }
            };
            stream::iter((0..self.count).map(Ok)).try_for_each_concurrent(AT_ONCE, one).await
        };
        futures::try_join!(delete, gone)?;
        Ok((started, began.elapsed()))
    }
}

impl DeploymentLoad {
    pub async fn run(&self, client: &Client) -> anyhow::Result<()> {
        let mut took = Vec::new();
        for n in 0..self.repeat {
            took.push(deployment(client, &format!("bench-{n}")).await?);
        }
        rows::seconds("deployment of 3", &took);
        Ok(())
    }
}

async fn deployment(client: &Client, name: &str) -> anyhow::Result<Duration> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let selector = format!("deployment={name}");
    let labels = json!({"deployment": name});
    let wanted = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}},
    }))?;
    let revision = deployments.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let began = Instant::now();
    deployments.create(&PostParams::default(), &wanted).await?;
    watch::until(&deployments, &selector, &revision, |seen, _| {
        let available = |found: &Deployment| found.status.as_ref().and_then(|status| status.available_replicas);
        seen.objects.values().any(|found| available(found) == Some(3))
    })
    .await?;
    let took = began.elapsed();
    let revision = self::revision(&pods).await?;
    deployments.delete(name, &DeleteParams::background()).await?;
    let mut gone = 0;
    watch::until(&pods, &selector, &revision, |seen, changed| {
        let name = changed.and_then(|pod| pod.metadata.name.as_ref());
        gone += usize::from(name.is_some_and(|name| !seen.objects.contains_key(name)));
        gone == 3
    })
    .await?;
    Ok(took)
}

const SELECTOR: &str = "bench=pods";

fn name(n: usize) -> String {
    format!("bench-{n}")
}

fn container() -> serde_json::Value {
    json!({"name": "pause", "image": IMAGE, "imagePullPolicy": "IfNotPresent"})
}

fn pod(n: usize) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name(n), "labels": {"bench": "pods"}},
        "spec": {"containers": [container()]},
    }))?)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn revision(pods: &Api<Pod>) -> anyhow::Result<String> {
    Ok(pods.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default())
}
