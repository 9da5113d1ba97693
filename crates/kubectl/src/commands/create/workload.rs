//! Generators of deployments, jobs and cron jobs.

use api::Value;
use serde_json::json;

use super::Generator;
use crate::{
    errors::CommandResult,
    object::{ObjectFields, name_of},
    resource::ResourceBuilder,
};

/// The name of a container for an image: the last part of its path, without tag and digest; one that needed other characters
/// ends in random ones.
fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let last = last.split(['@', ':']).next().unwrap_or(last);
    if last.contains(['_', '.']) {
        return format!("{}-{}", last.replace(['_', '.'], "-"), random_suffix());
    }
    last.to_owned()
}

fn containers(images: &[String], command: &[String]) -> Vec<Value> {
    let container = |image: &String| {
        let mut container = json!({"name": container_name(image), "image": image});
        if !command.is_empty() {
            container["command"] = command.into();
        }
        container
    };
    images.iter().map(container).collect()
}

fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())])).collect()
}

/// `create deployment`
pub fn deployment(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (images, command) = (flags.strings("image"), generator.command());
    if images.len() > 1 && !command.is_empty() {
        crate::bail!("cannot specify multiple --image options and command");
    }
    let labels = json!({"app": generator.name});
    let mut metadata = generator.metadata();
    metadata["labels"] = labels.clone();
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
        "replicas": flags.int("replicas"), "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers(&images, &command)}}}});
    let port = flags.int("port");
    if port >= 0
        && let Some(container) = object.pointer_mut("/spec/template/spec/containers/0")
    {
        container["ports"] = json!([{"containerPort": port}]);
    }
    generator.finish(object, "deployments", true, "failed to create deployment: ")
}

/// `create job`
pub fn job(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (image, from, command) = (flags.string("image"), flags.string("from"), generator.command());
    if image.is_empty() == from.is_empty() {
        crate::bail!("either --image or --from must be specified");
    }
    if !command.is_empty() && !from.is_empty() {
        crate::bail!("cannot specify --from and command");
    }
    let object = if from.is_empty() {
        let spec = json!({"template": {"spec": pod_spec(&generator.name, &image, &command, "Never")}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": generator.metadata(), "spec": spec})
    } else {
        job_from_cron_job(generator, &from)?
    };
    generator.finish(object, "jobs", true, "failed to create job: ")
}

fn pod_spec(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    let mut container = json!({"name": name, "image": image});
    if !command.is_empty() {
        container["command"] = command.into();
    }
    json!({"containers": [container], "restartPolicy": restart})
}

fn job_from_cron_job(generator: &Generator, from: &str) -> CommandResult<Value> {
    let session = generator.session;
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.filenames.clear();
    builder.arguments = vec![from.to_owned()];
    let infos = builder.infos(session)?;
    let [info] = infos.as_slice() else { crate::bail!("from must be an existing cronjob") };
    let cron_job = &info.object;
    if cron_job.text("kind") != "CronJob" {
        crate::bail!("unknown object type *{}.{}", info.mapping.version, cron_job.text("kind"));
    }
    let mut annotations = json!({"cronjob.kubernetes.io/instantiate": "manual"});
    for (key, value) in cron_job.map("spec.jobTemplate.metadata.annotations").into_iter().flatten() {
        annotations[key] = value.clone();
    }
    let mut metadata = generator.metadata();
    metadata["annotations"] = annotations;
    if let Some(labels) = cron_job.at("spec.jobTemplate.metadata.labels") {
        metadata["labels"] = labels.clone();
    }
    metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": name_of(cron_job),
        "uid": cron_job.text("metadata.uid"), "controller": true}]);
    let spec = cron_job.at("spec.jobTemplate.spec").cloned().unwrap_or_default();
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
}

/// `create cronjob`
pub fn cron_job(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let restart = flags.string("restart");
    let restart = if restart.is_empty() { "OnFailure".to_owned() } else { restart };
    let spec = pod_spec(&generator.name, &flags.string("image"), &generator.command(), &restart);
    let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": generator.metadata(), "spec": {
        "schedule": flags.string("schedule"),
        "jobTemplate": {"metadata": {"name": generator.name}, "spec": {"template": {"spec": spec}}}}});
    generator.finish(object, "cronjobs", true, "failed to create cronjob: ")
}
