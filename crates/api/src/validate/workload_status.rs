//! Validation of the status of workloads: counts that fit together.

use super::{Errors, at::At};

const REPLICAS: &str = "cannot be greater than status.replicas";

fn counts(status: &At, fields: &[&str], e: &mut Errors) {
    fields.iter().for_each(|field| status.get(field).nonnegative(e));
}

fn at_most(status: &At, fields: &[&str], bound: &str, message: &str, e: &mut Errors) {
    for field in fields.iter().filter(|field| status.get(field).int() > status.get(bound).int()) {
        status.get(field).invalid(e, message);
    }
}

/// A count of collisions only grows.
fn collisions(new: &At, old: &At, e: &mut Errors) {
    let (now, was) = (new.get("collisionCount"), old.get("collisionCount"));
    if was.exists() && (!now.exists() || now.int() < was.int()) {
        now.invalid_int(e, "cannot be decremented");
    }
}

pub(super) fn deployment(new: &At, old: &At, e: &mut Errors) {
    let status = new.get("status");
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    counts(&status, &fields, e);
    at_most(&status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "replicas", REPLICAS, e);
    at_most(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than readyReplicas", e);
    collisions(&status, &old.get("status"), e);
}

/// Replica sets and replication controllers.
pub(super) fn replicas(new: &At, _: &At, e: &mut Errors) {
    let status = new.get("status");
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    counts(&status, &fields, e);
    at_most(&status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "replicas", REPLICAS, e);
    at_most(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than readyReplicas", e);
}

pub(super) fn stateful_set(new: &At, old: &At, e: &mut Errors) {
    let status = new.get("status");
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    counts(&status, &fields, e);
    let bounded = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    at_most(&status, &bounded, "replicas", REPLICAS, e);
    at_most(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than status.readyReplicas", e);
    collisions(&status, &old.get("status"), e);
}

pub(super) fn daemon_set(new: &At, old: &At, e: &mut Errors) {
    let status = new.get("status");
    let fields = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    counts(&status, &fields, e);
    collisions(&status, &old.get("status"), e);
}

pub(super) fn autoscaler(new: &At, _: &At, e: &mut Errors) {
    counts(&new.get("status"), &["currentReplicas", "desiredReplicas"], e);
}

pub(super) fn disruption_budget(new: &At, _: &At, e: &mut Errors) {
    let status = new.get("status");
    super::condition::check(&status.get("conditions"), e);
    counts(&status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"], e);
}
