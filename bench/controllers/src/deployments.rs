//! Deployments of ten pods: created, at rest, rolled, deleted.

use serde_json::{Value, json};

use crate::{idle, load::LoadRun, load::pod_template, watch::ObjectCounter};

const FULL: usize = 1_000;
const REPLICAS: usize = 10;
const COLLECTION: &str = "/apis/apps/v1/namespaces/deployments/deployments";

/// Runs the load.
pub async fn run(run: &LoadRun) -> anyhow::Result<()> {
    run.create_namespace("deployments").await?;
    let count = run.count(FULL);
    let mut deployments = ObjectCounter::start(&run.cluster, COLLECTION, is_rolled_out).await?;

    let phase = run.begin()?;
    run.cluster.create_all((0..count).map(|number| (COLLECTION.to_owned(), deployment(number)))).await?;
    let ended = deployments.wait_for(|seen| seen.existing == count && seen.done == count).await?;
    phase.end(&format!("create {count} Deployments of {REPLICAS}"), ended)?;
    idle::run(run, &format!("{count} Deployments at rest")).await?;

    let phase = run.begin()?;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"release": "2"}}}}});
    run.cluster.patch_all((0..count).map(|number| format!("{COLLECTION}/web-{number}")), &patch).await?;
    let is_new = |deployment: &Value| deployment["metadata"]["generation"] == 2 && is_rolled_out(deployment);
    let mut rolled = ObjectCounter::start(&run.cluster, COLLECTION, is_new).await?;
    let ended = rolled.wait_for(|seen| seen.existing == count && seen.done == count).await?;
    phase.end(&format!("roll {count} Deployments of {REPLICAS}"), ended)?;

    let mut pods = ObjectCounter::start(&run.cluster, "/api/v1/namespaces/deployments/pods", |_| true).await?;
    pods.wait_for(|seen| seen.existing == count * REPLICAS).await?;
    let phase = run.begin()?;
    run.cluster.delete(COLLECTION, &json!({"propagationPolicy": "Background"})).await?;
    let ended = pods.wait_for(|seen| seen.existing == 0).await?;
    phase.end(&format!("delete {count} Deployments of {REPLICAS}"), ended)
}

/// Whether all replicas are those of the current template, and available.
fn is_rolled_out(deployment: &Value) -> bool {
    let status = &deployment["status"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[*field] == REPLICAS)
}

fn deployment(number: usize) -> Value {
    let name = format!("web-{number}");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": name}},
            "template": pod_template(&name, "Always")},
    })
}
