//! Completion of positional arguments: resources, names, containers, ports.

use super::{CompletionDirective, CompletionList, cluster_names};
use crate::session::Session;

/// The completion of a command's positional arguments.
enum ArgumentKind {
    /// A resource and names, or `TYPE/NAME`; of these resources only, if there are some, and once only if so said.
    Resources { allowed: &'static [&'static str], once: bool },
    /// Names of one resource.
    Names(&'static str),
    /// A pod, then its containers or ports.
    Pod(PodPart),
    /// An entry of the kubeconfig.
    Entry(&'static str),
    /// A file or a pod, for `cp`.
    Copy,
}

/// The argument behind the pod.
#[derive(Clone, Copy, PartialEq)]
enum PodPart {
    Nothing,
    Containers,
    Ports,
}

const WORKLOADS: &[&str] = &["deployment", "daemonset", "statefulset"];
const SCALABLE: &[&str] = &["deployment", "replicaset", "replicationcontroller", "statefulset"];
const WITH_IMAGES: &[&str] =
    &["daemonsets", "deployments", "pods", "cronjobs", "replicasets", "replicationcontrollers", "statefulsets"];
const EXPOSABLE: &[&str] = &["pod", "service", "replicationcontroller", "deployment", "replicaset"];
const WITH_PODS: [&str; 8] =
    ["daemonsets", "deployments", "pods", "jobs", "replicasets", "replicationcontrollers", "services", "statefulsets"];

fn argument_kind(path: &str) -> Option<ArgumentKind> {
    let resources = |allowed, once| Some(ArgumentKind::Resources { allowed, once });
    match path {
        "get"
        | "describe"
        | "delete"
        | "edit"
        | "label"
        | "annotate"
        | "patch"
        | "debug"
        | "apply view-last-applied"
        | "apply edit-last-applied" => resources(&[], false),
        "rollout resume" | "rollout pause" => resources(&["deployment"], false),
        "rollout restart" | "rollout undo" | "rollout history" => resources(WORKLOADS, false),
        "rollout status" => resources(WORKLOADS, true),
        "scale" | "autoscale" => resources(SCALABLE, false),
        "expose" => resources(EXPOSABLE, false),
        "taint" => resources(&["node"], false),
        "set image" => resources(WITH_IMAGES, true),
        "cordon" | "uncordon" | "drain" | "top node" => Some(ArgumentKind::Names("node")),
        "top pod" => Some(ArgumentKind::Names("pod")),
        "create token" => Some(ArgumentKind::Names("serviceaccount")),
        "exec" | "attach" => Some(ArgumentKind::Pod(PodPart::Nothing)),
        "logs" => Some(ArgumentKind::Pod(PodPart::Containers)),
        "port-forward" => Some(ArgumentKind::Pod(PodPart::Ports)),
        "config use-context" | "config delete-context" | "config rename-context" | "config set-context" => {
            Some(ArgumentKind::Entry("contexts"))
        }
        "config delete-cluster" => Some(ArgumentKind::Entry("clusters")),
        "config delete-user" => Some(ArgumentKind::Entry("users")),
        "cp" => Some(ArgumentKind::Copy),
        _ => None,
    }
}

/// Completes a positional argument of the session's command; `None` if it has no completion of its own.
pub fn complete_words(session: &Session, text: &str) -> Option<CompletionList> {
    let first = session.arguments().is_empty();
    let no_files = |words| CompletionList::new(words, CompletionDirective::NO_FILES);
    Some(match argument_kind(session.command.path.trim_start_matches("kubectl "))? {
        ArgumentKind::Resources { allowed, once } => complete_resources(session, text, allowed, once),
        ArgumentKind::Names(resource) if first => no_files(cluster_names::list_names(session, resource, text)),
        ArgumentKind::Entry(section) if first => no_files(cluster_names::list_entries(session, section, text)),
        ArgumentKind::Pod(_) if first => complete_pod(session, text),
        ArgumentKind::Pod(part) => no_files(match (part, session.arguments()) {
            (PodPart::Containers, [pod]) => cluster_names::list_containers(session, pod, text),
            (PodPart::Ports, [target]) => cluster_names::list_ports(session, target, text),
            _ => Vec::new(),
        }),
        ArgumentKind::Copy if first => complete_copy(session, text),
        ArgumentKind::Copy => CompletionList::new(Vec::new(), CompletionDirective::NO_SPACE),
        ArgumentKind::Names(_) | ArgumentKind::Entry(_) => no_files(Vec::new()),
    })
}

fn resource_list(session: &Session, text: &str, allowed: &[&str]) -> Vec<String> {
    if allowed.is_empty() {
        return cluster_names::list_resources(session, text);
    }
    allowed.iter().filter(|name| name.starts_with(text)).map(ToString::to_string).collect()
}

fn complete_resources(session: &Session, text: &str, allowed: &[&str], once: bool) -> CompletionList {
    let given = session.arguments();
    let mut directive = CompletionDirective::NO_FILES;
    let without_given = |mut words: Vec<String>, from: usize| {
        words.retain(|word| !given[from..].contains(word));
        words
    };
    let words = match (given, text.split_once('/')) {
        ([resource, rest @ ..], _) if !resource.contains('/') => {
            if once && !rest.is_empty() {
                Vec::new()
            } else {
                without_given(cluster_names::list_names(session, resource, text), 1)
            }
        }
        (given, Some((resource, name))) => {
            if once && !given.is_empty() {
                Vec::new()
            } else {
                let names = cluster_names::list_names(session, resource, name);
                without_given(names.into_iter().map(|name| format!("{resource}/{name}")).collect(), 0)
            }
        }
        ([], None) => resource_list(session, text, allowed),
        (_, None) if once => Vec::new(),
        (_, None) => {
            directive = directive.and(CompletionDirective::NO_SPACE);
            resource_list(session, text, allowed).into_iter().map(|name| format!("{name}/")).collect()
        }
    };
    CompletionList::new(words, directive)
}

fn complete_pod(session: &Session, text: &str) -> CompletionList {
    let mut directive = CompletionDirective::NO_FILES;
    if let Some((resource, name)) = text.split_once('/') {
        let names = cluster_names::list_names(session, resource, name);
        return CompletionList::new(names.into_iter().map(|name| format!("{resource}/{name}")).collect(), directive);
    }
    let mut words = cluster_names::list_names(session, "pod", text);
    if words.is_empty() {
        directive = directive.and(CompletionDirective::NO_SPACE);
    }
    words.extend(WITH_PODS.iter().filter(|name| name.starts_with(text)).map(|name| format!("{name}/")));
    CompletionList::new(words, directive)
}

fn complete_copy(session: &Session, text: &str) -> CompletionList {
    let directive = CompletionDirective::NO_SPACE;
    if text.starts_with(['/', '.', '~']) || text.contains(':') {
        return CompletionList::new(Vec::new(), directive);
    }
    if let Some((namespace, _)) = text.split_once('/') {
        return CompletionList::new(cluster_names::list_pods_of(session, namespace, text), directive);
    }
    let mut words: Vec<String> = Vec::new();
    words.extend(cluster_names::list_names(session, "namespace", text).iter().map(|name| format!("{name}/")));
    words.extend(cluster_names::list_names(session, "pod", text).iter().map(|name| format!("{name}:")));
    if text.is_empty() {
        words.extend(["./".to_owned(), "/".to_owned()]);
    } else if !words.is_empty() {
        words.extend(local_files(text));
    }
    CompletionList::new(words, directive)
}

/// Files of the working directory, directories with a slash.
fn local_files(text: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(".") else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_string_lossy())
    };
    let mut names: Vec<String> = entries.flatten().map(name).filter(|name| name.starts_with(text)).collect();
    names.sort();
    names
}
