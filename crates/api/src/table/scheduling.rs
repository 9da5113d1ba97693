//! Rows of priority classes, pod groups and leases.

use super::{
    printer::{AGE, Column, NAME, boolean, integer, text},
    row::Row,
};
use crate::{Value, meta};

pub(super) const PRIORITY_CLASS: &[Column] =
    &[NAME, integer("Value"), boolean("Global-Default"), AGE, text("PreemptionPolicy")];

pub(super) fn priority_class(row: &Row) -> Vec<Value> {
    vec![
        row.name(),
        row.number(&["value"]).into(),
        row.boolean_or(&["globalDefault"], false),
        row.age(),
        row.text(&["preemptionPolicy"]).into(),
    ]
}

pub(super) const POD_GROUP: &[Column] = &[NAME, text("Policy"), text("Workload"), text("Status"), AGE];

pub(super) fn pod_group(row: &Row) -> Vec<Value> {
    let policy = if row.at(&["spec", "schedulingPolicy", "gang"]).is_some() { "Gang" } else { "Basic" };
    let template = row.at(&["spec", "podGroupTemplateRef"]);
    let workload = template.map_or("<none>", |template| meta::text(template, &["workload", "workloadName"]));
    vec![row.name(), policy.into(), workload.into(), group_status(row).into(), row.age()]
}

fn group_status<'a>(row: &Row<'a>) -> &'a str {
    match (row.condition("DisruptionTarget"), row.condition("PodGroupScheduled")) {
        (Some(condition), _) => meta::text(condition, &["reason"]),
        (None, Some(condition)) if condition["status"] == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    }
}

pub(super) const LEASE: &[Column] = &[NAME, text("Holder"), AGE];

pub(super) fn lease(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["spec", "holderIdentity"]).into(), row.age()]
}

pub(super) const LEASE_CANDIDATE: &[Column] =
    &[NAME, text("LeaseName"), text("BinaryVersion"), text("EmulationVersion"), AGE];

pub(super) fn lease_candidate(row: &Row) -> Vec<Value> {
    let mut cells = vec![row.name()];
    cells.extend(["leaseName", "binaryVersion", "emulationVersion"].map(|field| row.text(&["spec", field]).into()));
    cells.push(row.age());
    cells
}
