//! `kubectl cordon`, `uncordon` and `drain`

use api::Value;
use serde_json::json;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    outln,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    rest::RestRequest,
    session::Session,
    usage::usage_error,
};

fn load_nodes(session: &Session, verb: &str) -> CommandResult<Vec<ResourceInfo>> {
    let flags = &session.flags;
    let selector = flags.string("selector");
    if session.arguments().is_empty() && selector.is_empty() {
        return Err(usage_error(session, &format!("USAGE: {verb} [flags]")));
    }
    if !session.arguments().is_empty() && !selector.is_empty() {
        return Err(usage_error(session, "error: cannot specify both a node name and a --selector option"));
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    if selector.is_empty() {
        builder.arguments = session.arguments().to_vec();
        builder.default_resource = "nodes".to_owned();
    } else {
        builder.arguments = vec!["nodes".to_owned()];
    }
    let infos = builder.infos(session)?;
    if infos.is_empty() {
        crate::bail!("No resources found");
    }
    Ok(infos)
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
    let nodes = load_nodes(session, "drain NODE")?;
    for node in &nodes {
        set_unschedulable(session, node, true, dry_run)?;
    }
    let mut drained = 0;
    let mut failures = Vec::new();
    for node in &nodes {
        match drain_node(session, node, dry_run) {
            Ok(()) => {
                drained += 1;
                outln!("node/{} drained{}", node.name, dry_run.suffix());
            }
            Err(error) => {
                errln!("error: unable to drain node \"{}\" due to error: {error}, continuing command...", node.name);
                let names: Vec<String> = nodes.iter().skip(drained).map(|node| node.name.clone()).collect();
                if !names.is_empty() {
                    errln!("There are pending nodes to be drained:");
                    names.iter().for_each(|name| errln!(" {name}"));
                }
                failures.push(error);
                break;
            }
        }
    }
    match failures.first() {
        Some(error) => Err(CommandError::ExitCode(1, error.to_string())),
        None => Ok(()),
    }
}

fn drain_node(session: &Session, node: &ResourceInfo, dry_run: DryRun) -> CommandResult {
    let client = session.client()?;
    let list = client.send_json(
        RestRequest::get("/api/v1/pods")
            .with_optional("labelSelector", &session.flags.string("pod-selector"))
            .with_query("fieldSelector", format!("spec.nodeName={}", node.name))
            .with_query("limit", "500"),
    )?;
    let mut pods = Vec::new();
    let mut errors: Vec<(String, Vec<String>)> = Vec::new();
    let mut warnings: Vec<(String, Vec<String>)> = Vec::new();
    for pod in list.list("items") {
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
    if !warnings.is_empty() {
        let texts: Vec<String> = warnings.iter().map(|(text, names)| format!("{text}: {}", names.join(", "))).collect();
        errln!("Warning: {}", texts.join("; "));
    }
    evict_pods(session, &pods, dry_run)
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
            Err(error) if error.is_not_found() && flags.bool("force") => {
                decision.warning = error.to_string();
                return Ok(decision);
            }
            Err(error) => {
                decision.delete = false;
                decision.error = error.to_string();
                return Ok(decision);
            }
            Ok(_) => {}
        }
        decision.delete = false;
        if flags.bool("ignore-daemonsets") {
            decision.warning = "ignoring DaemonSet-managed Pods".to_owned();
        } else {
            decision.error = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)".to_owned();
        }
        return Ok(decision);
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

fn evict_pods(session: &Session, pods: &[Value], dry_run: DryRun) -> CommandResult {
    let flags = &session.flags;
    let evicts = !flags.bool("disable-eviction");
    let word = if evicts { "evicting" } else { "deleting" };
    let timeout = flags.duration("timeout");
    let deadline = super::wait_condition::WaitDeadline::after(if timeout == 0 { -1 } else { timeout });
    for pod in pods {
        let (namespace, name) = (namespace_of(pod), name_of(pod));
        if dry_run == DryRun::Client {
            outln!("{word} pod {namespace}/{name}{}", dry_run.suffix());
            continue;
        }
        loop {
            if evicts {
                outln!("{word} pod {namespace}/{name}{}", dry_run.suffix());
            }
            match remove_pod(session, pod, evicts, dry_run) {
                Ok(()) => break,
                Err(error) if error.is_not_found() => break,
                Err(error) if error.reason() == "TooManyRequests" => {
                    errln!(
                        "error when evicting pods/{} -n {} (will retry after 5s): {error}",
                        api::json::go_quote(name),
                        api::json::go_quote(namespace)
                    );
                    match deadline.left() {
                        Some(left) => std::thread::sleep(left.min(std::time::Duration::from_secs(5))),
                        None => crate::bail!("global timeout reached: {}", api::duration::format(timeout)),
                    }
                    if deadline.left().is_none() {
                        crate::bail!(
                            "error when evicting pods/{} -n {}: global timeout reached: {}",
                            api::json::go_quote(name),
                            api::json::go_quote(namespace),
                            api::duration::format(timeout)
                        );
                    }
                }
                Err(error) => {
                    return Err(CommandError::new(format!(
                        "error when {word} pods/{} -n {}: {error}",
                        api::json::go_quote(name),
                        api::json::go_quote(namespace)
                    )));
                }
            }
        }
    }
    if dry_run != DryRun::None {
        return Ok(());
    }
    for pod in pods {
        let mapping = crate::discovery::RestMapping {
            version: "v1".into(),
            kind: "Pod".into(),
            resource: "pods".into(),
            namespaced: true,
            ..Default::default()
        };
        let info = ResourceInfo::from_object(mapping, pod.clone());
        super::wait_condition::wait_for_deletion(session.client()?, &info, pod.text("metadata.uid"), deadline)?;
        outln!("pod/{} {}", info.name, if evicts { "evicted" } else { "deleted" });
    }
    Ok(())
}

fn remove_pod(session: &Session, pod: &Value, evicts: bool, dry_run: DryRun) -> CommandResult {
    let mut options = json!({});
    let grace = session.flags.int("grace-period");
    if grace >= 0 {
        options["gracePeriodSeconds"] = grace.into();
    }
    if dry_run == DryRun::Server {
        options["dryRun"] = json!(["All"]);
    }
    let (namespace, name) = (namespace_of(pod), name_of(pod));
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = if evicts {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}, "deleteOptions": options});
        RestRequest::new(http::Method::POST, format!("{path}/eviction")).with_json(&body)
    } else {
        options["kind"] = "DeleteOptions".into();
        options["apiVersion"] = "v1".into();
        RestRequest::new(http::Method::DELETE, path).with_json(&options)
    };
    session.client()?.send(request).map(|_| ())
}
