//! A namespace with many objects that is deleted.

use serde_json::{Value, json};

use crate::{load::LoadRun, watch::ObjectCounter};

const FULL: usize = 50_000;
const NAME: &str = "full";

/// Runs the load.
pub async fn run(run: &LoadRun) -> anyhow::Result<()> {
    run.create_namespace(NAME).await?;
    let count = run.count(FULL);
    run.cluster.create_all((0..count).map(object)).await?;
    let mut namespaces = ObjectCounter::start(&run.cluster, "/api/v1/namespaces", is_the_namespace).await?;
    namespaces.wait_for(|seen| seen.done == 1).await?;
    let phase = run.begin()?;
    run.cluster.delete(&format!("/api/v1/namespaces/{NAME}"), &json!({})).await?;
    let ended = namespaces.wait_for(|seen| seen.done == 0).await?;
    phase.end(&format!("delete a namespace with {count} objects"), ended)
}

fn is_the_namespace(namespace: &Value) -> bool {
    namespace["metadata"]["name"] == NAME
}

/// The path of a collection and an object: ConfigMaps, Secrets and Endpoints in turn.
fn object(number: usize) -> (String, Value) {
    let name = format!("object-{number}");
    let (resource, object) = match number % 3 {
        0 => (
            "configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"key": "x".repeat(200)}}),
        ),
        1 => (
            "secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"key": "x".repeat(200)}}),
        ),
        _ => ("serviceaccounts", json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})),
    };
    (format!("/api/v1/namespaces/{NAME}/{resource}"), object)
}
