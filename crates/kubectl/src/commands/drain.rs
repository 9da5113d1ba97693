//! `kubectl cordon`, `uncordon` and `drain`

use api::{Value, json::go_quote};
use serde_json::json;

use super::pod_eviction::remove_pods;
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    outln,
    output::write_err,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    rest::RestRequest,
    session::Session,
    usage::usage_error,
};

/// Objects per list request of the commands that have no `--chunk-size`.
const DEFAULT_CHUNK_SIZE: i64 = 500;

fn load_nodes(session: &Session, verb: &str) -> CommandResult<Vec<ResourceInfo>> {
    let flags = &session.flags;
    let selector = flags.string("selector");
    if session.arguments().is_empty() && !flags.changed("selector") {
        return Err(usage_error(session, &format!("USAGE: {verb} [flags]")));
    }
    if !session.arguments().is_empty() && !selector.is_empty() {
        return Err(usage_error(session, "error: cannot specify both a node name and a --selector option"));
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    if !flags.has("chunk-size") {
        builder.chunk_size = DEFAULT_CHUNK_SIZE;
    }
    if selector.is_empty() {
        builder.arguments = session.arguments().to_vec();
        builder.default_resource = "nodes".to_owned();
    } else {
        builder.arguments = vec!["nodes".to_owned()];
    }
    builder.infos(session)
}

/// `kubectl cordon` and `uncordon`
pub fn run_cordon(session: &Session, desired: bool) -> CommandResult {
    let dry_run = DryRun::from_flags(&session.flags)?;
    let verb = if desired { "cordon" } else { "uncordon" };
    let nodes = load_nodes(session, &format!("{verb} NODE"))?;
    for node in &nodes {
        set_unschedulable(session, node, desired, dry_run)?;
    }
    Ok(())
}

fn set_unschedulable(session: &Session, node: &ResourceInfo, desired: bool, dry_run: DryRun) -> CommandResult {
    let word = if desired { "cordoned" } else { "uncordoned" };
    let current = node.object.flag("spec.unschedulable");
    if current == desired {
        outln!("node/{} already {word}{}", node.name, dry_run.suffix());
        return Ok(());
    }
    if dry_run != DryRun::Client {
        let value = if desired { Value::Bool(true) } else { Value::Null };
        let patch = json!({"spec": {"unschedulable": value}});
        let options = RequestOptions { dry_run, ..Default::default() };
        node.patch(session.client()?, PatchKind::Strategic, patch.to_string(), &options)?;
    }
    outln!("node/{} {word}{}", node.name, dry_run.suffix());
    Ok(())
}

/// The outcome of the filters for a pod.
struct PodDecision {
    delete: bool,
    warning: String,
    error: String,
}

/// `kubectl drain`
pub fn run_drain(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let pod_selector = flags.string("pod-selector");
    if !pod_selector.is_empty() && super::create::parse_label_selector(&pod_selector).is_err() {
        crate::bail!("--pod-selector=<pod_selector> must be a valid label selector");
    }
    let nodes = load_nodes(session, "drain NODE")?;
    for node in &nodes {
        set_unschedulable(session, node, true, dry_run)?;
    }
    let mut remaining: Vec<&str> = Vec::new();
    let mut failures = Vec::new();
    for node in &nodes {
        match drain_node(session, node, dry_run) {
            Ok(()) => outln!("node/{} drained{}", node.name, dry_run.suffix()),
            Err(error) => {
                errln!("error: unable to drain node \"{}\" due to error: {error}, continuing command...", node.name);
                remaining.push(&node.name);
                failures.push(error);
            }
        }
    }
    if !remaining.is_empty() {
        errln!("There are pending nodes to be drained:");
        remaining.iter().for_each(|name| errln!(" {name}"));
    }
    // A list even of one: the messages have no prefix, and each of the only node has a line.
    match failures.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Aggregate(vec![CommandError::Aggregate(match failures.pop() {
            Some(CommandError::Aggregate(only)) if failures.is_empty() => only,
            last => failures.into_iter().chain(last).collect(),
        })])),
    }
}

fn drain_node(session: &Session, node: &ResourceInfo, dry_run: DryRun) -> CommandResult {
    let (pods, warnings) = select_pods(session, node)?;
    if !warnings.is_empty() {
        errln!("Warning: {warnings}");
    }
    let outcome = remove_pods(session, &pods, dry_run);
    if let Err(error) = &outcome {
        match select_pods(session, node) {
            Ok((pending, _)) if !pending.is_empty() => {
                errln!("There are pending pods in node {} when an error occurred: {error}", go_quote(&node.name));
                pending.iter().for_each(|pod| errln!("pod/{}", name_of(pod)));
            }
            Ok(_) => {}
            Err(other) => {
                write_err(&format!("Following errors occurred while getting the list of pods to delete:\n{other}"))
            }
        }
    }
    outcome
}

/// All pods of a node, page by page.
fn list_pods(session: &Session, node: &str) -> CommandResult<Vec<Value>> {
    let (mut pods, mut next) = (Vec::new(), String::new());
    loop {
        let request = RestRequest::get("/api/v1/pods")
            .with_optional("labelSelector", &session.flags.string("pod-selector"))
            .with_query("fieldSelector", format!("spec.nodeName={node}"))
            .with_query("limit", session.flags.int("chunk-size").to_string())
            .with_optional("continue", &next);
        let list = session.client()?.send_json(request)?;
        pods.extend(list.list("items").iter().cloned());
        list.text("metadata.continue").clone_into(&mut next);
        if next.is_empty() {
            return Ok(pods);
        }
    }
}

/// The pods to remove and what there is to warn of.
fn select_pods(session: &Session, node: &ResourceInfo) -> CommandResult<(Vec<Value>, String)> {
    let mut pods = Vec::new();
    let mut errors: Vec<(String, Vec<String>)> = Vec::new();
    let mut warnings: Vec<(String, Vec<String>)> = Vec::new();
    for pod in list_pods(session, &node.name)? {
        let pod = &pod;
        let decision = decide(session, pod)?;
        let name = format!("{}/{}", namespace_of(pod), name_of(pod));
        let note = |list: &mut Vec<(String, Vec<String>)>, text: &str| match list
            .iter_mut()
            .find(|(known, _)| known == text)
        {
            Some((_, names)) => names.push(name.clone()),
            None => list.push((text.to_owned(), vec![name.clone()])),
        };
        if !decision.error.is_empty() {
            note(&mut errors, &decision.error);
        } else if !decision.warning.is_empty() {
            note(&mut warnings, &decision.warning);
        }
        if decision.delete {
            pods.push(pod.clone());
        }
    }
    if !errors.is_empty() {
        let texts: Vec<String> =
            errors.iter().map(|(text, names)| format!("cannot delete {text}: {}", names.join(", "))).collect();
        return Err(CommandError::Aggregate(texts.into_iter().map(CommandError::Message).collect()));
    }
    let texts: Vec<String> = warnings.iter().map(|(text, names)| format!("{text}: {}", names.join(", "))).collect();
    Ok((pods, texts.join("; ")))
}

fn decide(session: &Session, pod: &Value) -> CommandResult<PodDecision> {
    let flags = &session.flags;
    let mut decision = PodDecision { delete: true, warning: String::new(), error: String::new() };
    let finished = ["Succeeded", "Failed"].contains(&pod.text("status.phase"));
    let controller = pod.list("metadata.ownerReferences").iter().find(|owner| owner.flag("controller"));
    if pod.map("metadata.annotations").is_some_and(|map| map.contains_key("kubernetes.io/config.mirror")) {
        decision.delete = false;
        return Ok(decision);
    }
    if let Some(owner) = controller.filter(|owner| owner.text("kind") == "DaemonSet" && !finished) {
        let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", namespace_of(pod), owner.text("name"));
        match session.client()?.send_json(RestRequest::get(path)) {
            // Deleted, unless another filter is against it.
            Err(error) if error.is_not_found() && flags.bool("force") => {}
            Err(error) => {
                decision.delete = false;
                decision.error = error.to_string();
                return Ok(decision);
            }
            Ok(_) => {
                decision.delete = false;
                if flags.bool("ignore-daemonsets") {
                    decision.warning = "ignoring DaemonSet-managed Pods".to_owned();
                } else {
                    decision.error = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)".to_owned();
                }
                return Ok(decision);
            }
        }
    }
    let local = pod.list("spec.volumes").iter().any(|volume| volume.at("emptyDir").is_some());
    if local && !finished {
        if !flags.bool("delete-emptydir-data") {
            decision.delete = false;
            decision.error = "Pods with local storage (use --delete-emptydir-data to override)".to_owned();
            return Ok(decision);
        }
        decision.warning = "deleting Pods with local storage".to_owned();
    }
    // Only the last filter that allows the deletion may warn.
    if controller.is_some() || finished {
        decision.warning.clear();
    } else {
        if flags.bool("force") {
            decision.warning = "deleting Pods that declare no controller".to_owned();
        } else {
            decision.delete = false;
            decision.error = "Pods that declare no controller (use --force to override)".to_owned();
        }
    }
    Ok(decision)
}
