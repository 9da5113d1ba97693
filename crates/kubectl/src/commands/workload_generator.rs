//! Generators of `kubectl run` that made workloads until Kubernetes 1.18: `--generator`, and `--replicas` and `--schedule`
//! without it, from which the generator follows.

use api::Value;
use serde_json::json;

use crate::{
    errln, errors::CommandResult, flag_set::FlagSet, object::ObjectFields, session::Session, usage::usage_error,
};

/// The kinds of objects that generators make of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadGenerator {
    /// `run-pod/v1`
    Pod,
    /// `deployment/apps.v1` and its older versions
    Deployment,
    /// `run/v1`
    ReplicationController,
    /// `job/v1`
    Job,
    /// `cronjob/…`
    CronJob,
}

impl WorkloadGenerator {
    /// The generator that the flags ask for; plain `run` makes a pod.
    pub fn from_session(session: &Session, restart: &str) -> CommandResult<Self> {
        let flags = &session.flags;
        let name = match flags.string("generator") {
            name if !name.is_empty() => name,
            _ if flags.changed("schedule") => "cronjob/v1beta1".to_owned(),
            _ if flags.changed("replicas") => inferred_name(restart).to_owned(),
            _ => return Ok(WorkloadGenerator::Pod),
        };
        let generator = match name.as_str() {
            "run-pod/v1" => WorkloadGenerator::Pod,
            "deployment/apps.v1" | "deployment/apps.v1beta1" | "deployment/v1beta1" => WorkloadGenerator::Deployment,
            "run/v1" => WorkloadGenerator::ReplicationController,
            "job/v1" => WorkloadGenerator::Job,
            "cronjob/v1" | "cronjob/v1beta1" | "cronjob/v2alpha1" => WorkloadGenerator::CronJob,
            _ => {
                let message = format!("generator {} not found", api::json::go_quote(&name));
                return Err(usage_error(session, &message));
            }
        };
        generator.check(session, restart)?;
        if generator != WorkloadGenerator::Pod {
            errln!(
                "kubectl run --generator={name} is DEPRECATED and will be removed in a future version. Use kubectl run \
                 --generator=run-pod/v1 or kubectl create instead."
            );
        }
        Ok(generator)
    }

    fn check(self, session: &Session, restart: &str) -> CommandResult {
        let (flags, replicas) = (&session.flags, session.flags.int("replicas"));
        let scales = matches!(self, WorkloadGenerator::Deployment | WorkloadGenerator::ReplicationController);
        if replicas < 0 {
            return Err(usage_error(session, "--replicas must be zero or more"));
        }
        if flags.changed("replicas") && !scales && replicas != 1 {
            let message = format!("--restart={restart} requires that --replicas=1, found {replicas}");
            return Err(usage_error(session, &message));
        }
        if scales && flags.changed("restart") && restart != "Always" {
            return Err(usage_error(session, &format!("--restart={restart} needs a pod or a job, not replicas")));
        }
        if self == WorkloadGenerator::CronJob && flags.string("schedule").is_empty() {
            return Err(usage_error(session, "--schedule is required for a cron job"));
        }
        let attached = ["attach", "stdin", "tty"].iter().any(|name| flags.bool(name));
        if self != WorkloadGenerator::Pod && attached {
            let message = "--attach, --stdin and --tty can only be used with --generator=run-pod/v1";
            return Err(usage_error(session, message));
        }
        Ok(())
    }

    /// The resource of the objects.
    pub fn resource(self) -> &'static str {
        match self {
            WorkloadGenerator::Pod => "pods",
            WorkloadGenerator::Deployment => "deployments",
            WorkloadGenerator::ReplicationController => "replicationcontrollers",
            WorkloadGenerator::Job => "jobs",
            WorkloadGenerator::CronJob => "cronjobs",
        }
    }

    /// Wraps the pod of plain `run` in a workload.
    pub fn wrap(self, flags: &FlagSet, pod: Value) -> Value {
        if self == WorkloadGenerator::Pod {
            return pod;
        }
        let labels = pod.at("metadata.labels").cloned().unwrap_or_default();
        let metadata = pod.at("metadata").cloned().unwrap_or_default();
        let mut spec = pod.at("spec").cloned().unwrap_or_default();
        if matches!(self, WorkloadGenerator::Job | WorkloadGenerator::CronJob) && spec.text("restartPolicy") == "Always"
        {
            spec["restartPolicy"] = "OnFailure".into();
        }
        let template = json!({"metadata": {"labels": labels}, "spec": spec});
        let replicas = flags.int("replicas");
        let (version, kind, spec) = match self {
            WorkloadGenerator::Pod => return pod,
            WorkloadGenerator::Deployment => (
                "apps/v1",
                "Deployment",
                json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}),
            ),
            WorkloadGenerator::ReplicationController => {
                ("v1", "ReplicationController", json!({"replicas": replicas, "selector": labels, "template": template}))
            }
            WorkloadGenerator::Job => ("batch/v1", "Job", json!({"template": template})),
            WorkloadGenerator::CronJob => (
                "batch/v1",
                "CronJob",
                json!({"schedule": flags.string("schedule"), "concurrencyPolicy": "Allow",
                    "jobTemplate": {"spec": {"template": template}}}),
            ),
        };
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    }
}

/// The generator that `--restart` stands for.
fn inferred_name(restart: &str) -> &'static str {
    match restart {
        "OnFailure" => "job/v1",
        "Never" => "run-pod/v1",
        _ => "deployment/apps.v1",
    }
}
