//! Descriptions of controllers of pods.

use api::{Value, selector::LabelSelector};

use super::{
    DescribeContext,
    description::{Description, format_time, scalar_text},
    pod::controller_text,
    template::push_template,
};
use crate::object::{ObjectFields, name_of, namespace_of};

fn number(object: &Value, path: &str) -> i64 {
    object.integer(path).unwrap_or(0)
}

fn selector_text(object: &Value) -> String {
    object.at("spec.selector").map(api::selector::format_label_selector).unwrap_or_else(|| "<none>".to_owned())
}

/// Counts the pods of a selector by phase.
fn pod_phases(context: &DescribeContext, object: &Value, selector: &str) -> String {
    let path = format!("/api/v1/namespaces/{}/pods", namespace_of(object));
    let pods = context.list_in_chunks(&path, "labelSelector", selector);
    let uid = object.text("metadata.uid");
    let count = |phase: &str| {
        let owned = |pod: &&Value| {
            pod.list("metadata.ownerReferences")
                .iter()
                .any(|owner| owner.flag("controller") && owner.text("uid") == uid)
        };
        pods.iter().filter(owned).filter(|pod| pod.text("status.phase") == phase).count()
    };
    format!(
        "{} Running / {} Waiting / {} Succeeded / {} Failed",
        count("Running"),
        count("Pending"),
        count("Succeeded"),
        count("Failed")
    )
}

/// ReplicaSets.
pub fn replica_set(context: &DescribeContext, out: &mut Description, set: &Value) {
    let selector = selector_text(set);
    set_head(out, set, &selector);
    if let Some(owner) = controller_text(set) {
        out.field(0, "Controlled By", &owner);
    }
    replicas_and_template(context, out, set, &selector);
}

/// ReplicationControllers.
pub fn replication_controller(context: &DescribeContext, out: &mut Description, set: &Value) {
    let pairs: Vec<String> = set
        .map("spec.selector")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let selector = pairs.join(",");
    set_head(out, set, &selector);
    replicas_and_template(context, out, set, &selector);
}

fn set_head(out: &mut Description, set: &Value, selector: &str) {
    out.field(0, "Name", name_of(set));
    out.field(0, "Namespace", namespace_of(set));
    out.field(0, "Selector", selector);
    out.map(0, "Labels", set.map("metadata.labels"));
    out.annotations(0, "Annotations", set.map("metadata.annotations"));
}

fn replicas_and_template(context: &DescribeContext, out: &mut Description, set: &Value, selector: &str) {
    out.field(
        0,
        "Replicas",
        &format!("{} current / {} desired", number(set, "status.replicas"), number(set, "spec.replicas")),
    );
    out.field(0, "Pods Status", &pod_phases(context, set, selector));
    push_template(out, set.at("spec.template").unwrap_or(&Value::Null));
    conditions(out, set.list("status.conditions"));
    context.events(out, set);
}

fn conditions(out: &mut Description, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.raw("Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------\n");
    for condition in conditions {
        out.raw(&format!(
            "  {} \t{}\t{}\n",
            condition.text("type"),
            condition.text("status"),
            condition.text("reason")
        ));
    }
}

/// StatefulSets.
pub fn stateful_set(context: &DescribeContext, out: &mut Description, set: &Value) {
    let selector = selector_text(set);
    out.field(0, "Name", name_of(set));
    out.field(0, "Namespace", namespace_of(set));
    out.field(0, "CreationTimestamp", &format_time(set.text("metadata.creationTimestamp")));
    out.field(0, "Selector", &selector);
    out.map(0, "Labels", set.map("metadata.labels"));
    out.annotations(0, "Annotations", set.map("metadata.annotations"));
    out.field(
        0,
        "Replicas",
        &format!("{} desired | {} total", number(set, "spec.replicas"), number(set, "status.replicas")),
    );
    out.field(0, "Update Strategy", set.text("spec.updateStrategy.type"));
    if set.at("spec.updateStrategy.rollingUpdate").is_some() {
        out.field(1, "Partition", &number(set, "spec.updateStrategy.rollingUpdate.partition").to_string());
        if let Some(maximum) = set.at("spec.updateStrategy.rollingUpdate.maxUnavailable") {
            out.field(1, "MaxUnavailable", &scalar_text(Some(maximum)));
        }
    }
    out.field(0, "Pods Status", &pod_phases(context, set, &selector));
    push_template(out, set.at("spec.template").unwrap_or(&Value::Null));
    volume_claims(out, set.list("spec.volumeClaimTemplates"));
    context.events(out, set);
}

fn volume_claims(out: &mut Description, claims: &[Value]) {
    if claims.is_empty() {
        out.raw("Volume Claims:\t<none>\n");
        return;
    }
    out.raw("Volume Claims:\n");
    for claim in claims {
        out.raw(&format!("  Name:\t{}\n  StorageClass:\t{}\n", name_of(claim), claim.text("spec.storageClassName")));
        out.map(1, "Labels", claim.map("metadata.labels"));
        out.annotations(1, "Annotations", claim.map("metadata.annotations"));
        let capacity = claim.at("spec.resources.requests.storage");
        out.raw(&format!(
            "  Capacity:\t{}\n",
            capacity.map_or("<default>".to_owned(), |value| scalar_text(Some(value)))
        ));
        let modes: Vec<&str> = claim.list("spec.accessModes").iter().filter_map(Value::as_str).collect();
        out.raw(&format!("  Access Modes:\t[{}]\n", modes.join(" ")));
    }
}

/// DaemonSets.
pub fn daemon_set(context: &DescribeContext, out: &mut Description, set: &Value) {
    let selector = selector_text(set);
    out.field(0, "Name", name_of(set));
    out.field(0, "Namespace", namespace_of(set));
    out.field(0, "Selector", &selector);
    out.field(0, "Node-Selector", &crate::printers::format_labels(set.at("spec.template.spec.nodeSelector")));
    out.map(0, "Labels", set.map("metadata.labels"));
    out.annotations(0, "Annotations", set.map("metadata.annotations"));
    for (label, path) in [
        ("Desired Number of Nodes Scheduled", "status.desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "status.currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "status.updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "status.numberAvailable"),
        ("Number of Nodes Misscheduled", "status.numberMisscheduled"),
    ] {
        out.line(0, &format!("{label}: {}", number(set, path)));
    }
    out.field(0, "Pods Status", &pod_phases(context, set, &selector));
    push_template(out, set.at("spec.template").unwrap_or(&Value::Null));
    context.events(out, set);
}

/// Jobs.
pub fn job(context: &DescribeContext, out: &mut Description, job: &Value) {
    out.field(0, "Name", name_of(job));
    out.field(0, "Namespace", namespace_of(job));
    if job.at("spec.selector").is_some() {
        out.field(0, "Selector", &selector_text(job));
    }
    out.map(0, "Labels", job.map("metadata.labels"));
    out.annotations(0, "Annotations", job.map("metadata.annotations"));
    if let Some(owner) = controller_text(job) {
        out.field(0, "Controlled By", &owner);
    }
    let optional = |path: &str| job.integer(path).map_or("<unset>".to_owned(), |number| number.to_string());
    if job.integer("spec.parallelism").is_some() {
        out.field(0, "Parallelism", &optional("spec.parallelism"));
    }
    out.field(0, "Completions", &optional("spec.completions"));
    if !job.text("spec.completionMode").is_empty() {
        out.field(0, "Completion Mode", job.text("spec.completionMode"));
    }
    if let Some(suspend) = job.at("spec.suspend").and_then(Value::as_bool) {
        out.field(0, "Suspend", &suspend.to_string());
    }
    if job.integer("spec.backoffLimit").is_some() {
        out.field(0, "Backoff Limit", &optional("spec.backoffLimit"));
    }
    if job.integer("spec.ttlSecondsAfterFinished").is_some() {
        out.field(0, "TTL Seconds After Finished", &optional("spec.ttlSecondsAfterFinished"));
    }
    let (start, end) = (job.text("status.startTime"), job.text("status.completionTime"));
    if !start.is_empty() {
        out.field(0, "Start Time", &format_time(start));
    }
    if !end.is_empty() {
        out.field(0, "Completed At", &format_time(end));
    }
    if let (Some(start), Some(end)) = (api::time::parse(start), api::time::parse(end)) {
        out.field(0, "Duration", &api::time::human_duration(end.as_second() - start.as_second()));
    }
    if let Some(seconds) = job.integer("spec.activeDeadlineSeconds") {
        out.field(0, "Active Deadline Seconds", &format!("{seconds}s"));
    }
    let ready = job.integer("status.ready").map_or(String::new(), |ready| format!(" ({ready} Ready)"));
    out.field(
        0,
        "Pods Statuses",
        &format!(
            "{} Active{ready} / {} Succeeded / {} Failed",
            number(job, "status.active"),
            number(job, "status.succeeded"),
            number(job, "status.failed")
        ),
    );
    if job.text("spec.completionMode") == "Indexed" {
        let indexes = job.text("status.completedIndexes");
        out.field(0, "Completed Indexes", if indexes.is_empty() { "<none>" } else { indexes });
    }
    push_template(out, job.at("spec.template").unwrap_or(&Value::Null));
    context.events(out, job);
}

/// CronJobs.
pub fn cron_job(context: &DescribeContext, out: &mut Description, job: &Value) {
    out.metadata(job, true);
    out.field(0, "Schedule", job.text("spec.schedule"));
    out.field(0, "Concurrency Policy", job.text("spec.concurrencyPolicy"));
    out.field(0, "Suspend", if job.flag("spec.suspend") { "True" } else { "False" });
    let zone = job.text("spec.timeZone");
    out.field(0, "Time Zone", if zone.is_empty() { "<unset>" } else { zone });
    let optional = |path: &str| job.integer(path).map_or("<unset>".to_owned(), |number| number.to_string());
    out.field(0, "Successful Job History Limit", &optional("spec.successfulJobsHistoryLimit"));
    out.field(0, "Failed Job History Limit", &optional("spec.failedJobsHistoryLimit"));
    let deadline =
        job.integer("spec.startingDeadlineSeconds").map_or("<unset>".to_owned(), |seconds| format!("{seconds}s"));
    out.field(0, "Starting Deadline Seconds", &deadline);
    let selector = job.at("spec.jobTemplate.spec.selector").map(api::selector::format_label_selector);
    out.field(0, "Selector", &selector.unwrap_or_else(|| "<unset>".to_owned()));
    out.field(0, "Parallelism", &optional("spec.jobTemplate.spec.parallelism"));
    out.field(0, "Completions", &optional("spec.jobTemplate.spec.completions"));
    if let Some(seconds) = job.integer("spec.jobTemplate.spec.activeDeadlineSeconds") {
        out.field(0, "Active Deadline Seconds", &format!("{seconds}s"));
    }
    push_template(out, job.at("spec.jobTemplate.spec.template").unwrap_or(&Value::Null));
    let last = job.text("status.lastScheduleTime");
    out.field(0, "Last Schedule Time", &if last.is_empty() { "<unset>".to_owned() } else { format_time(last) });
    let active: Vec<&str> = job.list("status.active").iter().map(|reference| reference.text("name")).collect();
    out.field(0, "Active Jobs", &if active.is_empty() { "<none>".to_owned() } else { active.join(", ") });
    context.events(out, job);
}

/// Deployments.
pub fn deployment(context: &DescribeContext, out: &mut Description, deployment: &Value) {
    out.field(0, "Name", name_of(deployment));
    out.field(0, "Namespace", namespace_of(deployment));
    out.field(0, "CreationTimestamp", &format_time(deployment.text("metadata.creationTimestamp")));
    out.map(0, "Labels", deployment.map("metadata.labels"));
    out.annotations(0, "Annotations", deployment.map("metadata.annotations"));
    out.field(0, "Selector", &selector_text(deployment));
    let count = |path: &str| number(deployment, path);
    out.field(
        0,
        "Replicas",
        &format!(
            "{} desired | {} updated | {} total | {} available | {} unavailable",
            count("spec.replicas"),
            count("status.updatedReplicas"),
            count("status.replicas"),
            count("status.availableReplicas"),
            count("status.unavailableReplicas")
        ),
    );
    out.field(0, "StrategyType", deployment.text("spec.strategy.type"));
    out.field(0, "MinReadySeconds", &count("spec.minReadySeconds").to_string());
    if let Some(rolling) = deployment.at("spec.strategy.rollingUpdate") {
        let text = format!(
            "{} max unavailable, {} max surge",
            scalar_text(rolling.at("maxUnavailable")),
            scalar_text(rolling.at("maxSurge"))
        );
        out.field(0, "RollingUpdateStrategy", &text);
    }
    push_template(out, deployment.at("spec.template").unwrap_or(&Value::Null));
    conditions(out, deployment.list("status.conditions"));
    replica_sets(context, out, deployment);
    context.events(out, deployment);
}

/// The old and new ReplicaSets of a deployment.
fn replica_sets(context: &DescribeContext, out: &mut Description, deployment: &Value) {
    let selector = deployment.at("spec.selector").cloned().unwrap_or_default();
    let path = format!("/apis/apps/v1/namespaces/{}/replicasets", namespace_of(deployment));
    let text = api::selector::format_label_selector(&selector);
    let uid = deployment.text("metadata.uid");
    let mut sets = context.list_in_chunks(&path, "labelSelector", &text);
    let _ = LabelSelector::from_object(&selector);
    sets.retain(|set| {
        set.list("metadata.ownerReferences").iter().any(|owner| owner.flag("controller") && owner.text("uid") == uid)
    });
    sets.sort_by_key(|set| (set.text("metadata.creationTimestamp").to_owned(), name_of(set).to_owned()));
    if sets.is_empty() {
        return;
    }
    let plain = |template: Option<&Value>| {
        let mut template = template.cloned().unwrap_or_default();
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.remove("pod-template-hash");
        }
        template
    };
    let wanted = plain(deployment.at("spec.template"));
    let new = sets.iter().position(|set| plain(set.at("spec.template")) == wanted);
    let line = |set: &Value| {
        format!(
            "{} ({}/{} replicas created)",
            name_of(set),
            number(set, "status.replicas"),
            number(set, "spec.replicas")
        )
    };
    let old: Vec<String> = sets
        .iter()
        .enumerate()
        .filter(|(at, set)| Some(*at) != new && number(set, "spec.replicas") > 0)
        .map(|(_, set)| line(set))
        .collect();
    out.field(0, "OldReplicaSets", &if old.is_empty() { "<none>".to_owned() } else { old.join(", ") });
    out.field(0, "NewReplicaSet", &new.map_or("<none>".to_owned(), |at| line(&sets[at])));
}
