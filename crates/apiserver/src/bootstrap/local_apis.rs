//! The local `APIService` of each group-version that this server serves, read from `apis.txt`.

use api::{Value, meta, status::Status};
use apiserver_core::{
    bootstrap_table as lines,
    loopback::{self, LoopbackClient, ObjectKey},
};
use registry::Registry;
use serde_json::json;

const TABLE: &str = include_str!("apis.txt");

/// The objects of the table.
pub fn api_service_objects() -> Result<Vec<Value>, Status> {
    lines::table_lines(TABLE).map(|line| parse_api_service(line).ok_or_else(|| lines::malformed_line(line))).collect()
}

fn parse_api_service(line: &str) -> Option<Value> {
    let words: Vec<&str> = line.split(' ').collect();
    let [group, version, group_priority, version_priority] = words.as_slice() else { return None };
    let group = if *group == "core" { "" } else { group };
    Some(json!({
        "metadata": {
            "name": format!("{version}.{group}"),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": group_priority.parse::<i64>().ok()?,
            "versionPriority": version_priority.parse::<i64>().ok()?,
        },
    }))
}

/// Creates an object that is missing.
pub async fn create_api_service(registry: &Registry, object: Value) -> Result<(), Status> {
    let resource = loopback::find_resource("apiregistration.k8s.io", "v1", "apiservices")?;
    let place = ObjectKey { resource, namespace: "", name: meta::name(&object) };
    super::create_missing(LoopbackClient::new(registry), place, &object).await.map(drop)
}
