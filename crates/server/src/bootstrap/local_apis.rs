//! An `APIService` for each group and version that this server serves itself, read from `apis.txt`: clients find the
//! order of groups there, and aggregated servers register beside them.

use api::status::Status;
use serde_json::json;

use super::lines;
use crate::{
    registry::Registry,
    system::{self, Place, System},
};

const TABLE: &str = include_str!("apis.txt");

/// Creates what is missing.
pub async fn create(registry: &Registry) -> Result<(), Status> {
    let resource = system::resource("apiregistration.k8s.io", "v1", "apiservices")?;
    for line in lines::of(TABLE) {
        let words: Vec<&str> = line.split(' ').collect();
        let [group, version, group_priority, version_priority] = words.as_slice() else {
            return Err(lines::unreadable(line));
        };
        let group = if *group == "core" { "" } else { group };
        let number = |text: &str| text.parse::<i64>().map_err(|_| lines::unreadable(line));
        let name = format!("{version}.{group}");
        let object = json!({
            "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": number(group_priority)?,
                "versionPriority": number(version_priority)?},
        });
        let place = Place { resource, namespace: "", name: &name };
        super::create_missing(System::new(registry), place, &object).await?;
    }
    Ok(())
}
