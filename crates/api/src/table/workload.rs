//! Rows of what keeps pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, and their parts.

use super::{
    format::{containers, labels, qualified, selector_or_none},
    printer::{AGE, Column, NAME, integer, text, wide},
    row::Row,
};
use crate::{Value, meta, selector};

const CONTAINERS: Column = wide("Containers");
const IMAGES: Column = wide("Images");
const SELECTOR: Column = wide("Selector");

/// The containers of the pods that an object makes.
fn template<'a>(row: &Row<'a>) -> &'a [Value] {
    row.list(&["spec", "template", "spec", "containers"])
}

pub(super) const POD_TEMPLATE: &[Column] = &[NAME, text("Containers"), text("Images"), text("Pod Labels")];

pub(super) fn pod_template(row: &Row) -> Vec<Value> {
    let [names, images] = containers(row.list(&["template", "spec", "containers"]));
    vec![row.name(), names, images, labels(row.at(&["template", "metadata", "labels"])).into()]
}

pub(super) const DEPLOYMENT: &[Column] =
    &[NAME, text("Ready"), text("Up-to-date"), text("Available"), AGE, CONTAINERS, IMAGES, SELECTOR];

pub(super) fn deployment(row: &Row) -> Vec<Value> {
    let [names, images] = containers(template(row));
    vec![
        row.name(),
        ready(row).into(),
        row.number(&["status", "updatedReplicas"]).into(),
        row.number(&["status", "availableReplicas"]).into(),
        row.age(),
        names,
        images,
        selector::text(&row.object["spec"]["selector"]).into(),
    ]
}

fn ready(row: &Row) -> String {
    format!("{}/{}", row.number(&["status", "readyReplicas"]), row.number(&["spec", "replicas"]))
}

pub(super) const REPLICAS: &[Column] =
    &[NAME, integer("Desired"), integer("Current"), integer("Ready"), AGE, CONTAINERS, IMAGES, SELECTOR];

pub(super) fn replica_set(row: &Row) -> Vec<Value> {
    replicas(row, selector_or_none(&row.object["spec"]["selector"]))
}

pub(super) fn replication_controller(row: &Row) -> Vec<Value> {
    replicas(row, labels(row.at(&["spec", "selector"])))
}

fn replicas(row: &Row, selector: String) -> Vec<Value> {
    let [names, images] = containers(template(row));
    vec![
        row.name(),
        row.number(&["spec", "replicas"]).into(),
        row.number(&["status", "replicas"]).into(),
        row.number(&["status", "readyReplicas"]).into(),
        row.age(),
        names,
        images,
        selector.into(),
    ]
}

pub(super) const STATEFUL_SET: &[Column] = &[NAME, text("Ready"), AGE, CONTAINERS, IMAGES];

pub(super) fn stateful_set(row: &Row) -> Vec<Value> {
    let [names, images] = containers(template(row));
    vec![row.name(), ready(row).into(), row.age(), names, images]
}

pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    integer("Up-to-date"),
    integer("Available"),
    text("Node Selector"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn daemon_set(row: &Row) -> Vec<Value> {
    let status = |field: &str| row.number(&["status", field]).into();
    let [names, images] = containers(template(row));
    vec![
        row.name(),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(row.at(&["spec", "template", "spec", "nodeSelector"])).into(),
        row.age(),
        names,
        images,
        selector_or_none(&row.object["spec"]["selector"]).into(),
    ]
}

pub(super) const CONTROLLER_REVISION: &[Column] = &[NAME, text("Controller"), text("Revision"), AGE];

pub(super) fn controller_revision(row: &Row) -> Vec<Value> {
    let owners = row.list(&["metadata", "ownerReferences"]);
    let controller = owners.iter().find(|owner| owner["controller"] == true);
    let name = controller.map_or("<none>".to_owned(), |owner| {
        let group = meta::text(owner, &["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
        let kind = qualified(meta::text(owner, &["kind"]), group).to_lowercase();
        format!("{kind}/{}", meta::text(owner, &["name"]))
    });
    vec![row.name(), name.into(), row.number(&["revision"]).into(), row.age()]
}
