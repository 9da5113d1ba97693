//! Jobs of one pod that succeeds at once.

use serde_json::{Value, json};

use crate::{
    load::{LoadRun, pod_template},
    watch::ObjectCounter,
};

const FULL: usize = 10_000;
const COLLECTION: &str = "/apis/batch/v1/namespaces/jobs/jobs";

/// Runs the load.
pub async fn run(run: &LoadRun) -> anyhow::Result<()> {
    run.create_namespace("jobs").await?;
    let count = run.count(FULL);
    let mut jobs = ObjectCounter::start(&run.cluster, COLLECTION, is_complete).await?;
    let phase = run.begin()?;
    run.cluster.create_all((0..count).map(|number| (COLLECTION.to_owned(), job(number)))).await?;
    let ended = jobs.wait_for(|seen| seen.existing == count && seen.done == count).await?;
    phase.end(&format!("{count} Jobs of one pod"), ended)
}

fn is_complete(job: &Value) -> bool {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    job["status"]["succeeded"] == 1
        && conditions.any(|condition| condition["type"] == "Complete" && condition["status"] == "True")
}

fn job(number: usize) -> Value {
    let name = format!("job-{number}");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": pod_template(&name, "Never")},
    })
}
