//! A load on a cluster, and the figures of its phases.

use std::time::{Duration, Instant};

use ferry_bench_api::servers::MeasuredServer;
use serde_json::{Value, json};

use crate::{cluster::BenchCluster, manager::MeasuredControllerManager};

/// A cluster that a load is put on.
pub struct LoadRun {
    /// Whose controller manager it is.
    pub side: &'static str,
    /// The part of the objects that there are.
    pub scale: f64,
    /// Its API server, for requests.
    pub cluster: BenchCluster,
    /// Its API server, for figures.
    pub server: MeasuredServer,
    /// Its controller manager.
    pub manager: MeasuredControllerManager,
}

/// The begin of a phase.
pub struct LoadPhase<'a> {
    run: &'a LoadRun,
    began: Instant,
    cpu: Duration,
    server_cpu: Duration,
}

impl LoadRun {
    /// The number of objects instead of `full`.
    pub fn count(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(1)
    }

    /// Creates a namespace and waits until pods can be created in it.
    pub async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.cluster.create_all([("/api/v1/namespaces".to_owned(), namespace)]).await?;
        self.cluster.wait_for_object(&format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await
    }

    /// Begins a phase.
    pub fn begin(&self) -> anyhow::Result<LoadPhase<'_>> {
        Ok(LoadPhase { run: self, began: Instant::now(), cpu: self.manager.cpu()?, server_cpu: self.server.cpu()? })
    }

    /// Prints a row.
    pub fn row(&self, row: &str, unit: &str, value: f64) {
        println!(
            "{}",
            json!({"server": self.side, "row": format!("controllers, {row}"), "unit": unit, "value": value})
        );
    }
}

impl LoadPhase<'_> {
    /// Prints the rows of the phase, which ended at `ended`.
    pub fn end(self, what: &str, ended: Instant) -> anyhow::Result<()> {
        let run = self.run;
        run.row(&format!("{what}: time"), "s", (ended - self.began).as_secs_f64());
        run.row(&format!("{what}: CPU"), "s", (run.manager.cpu()? - self.cpu).as_secs_f64());
        run.row(&format!("{what}: CPU of the API server"), "s", (run.server.cpu()? - self.server_cpu).as_secs_f64());
        run.row(&format!("{what}: memory, most so far"), "MB", run.manager.peak()? as f64 / 1e6);
        Ok(())
    }
}

/// The template of pods that run or succeed.
pub fn pod_template(app: &str, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"restartPolicy": restart_policy, "containers": [{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }]},
    })
}
