//! Names in the cluster and in the kubeconfig. Errors give no names: a shell has no place to show them.

use api::Value;

use crate::{
    object::{ObjectFields, name_of},
    resource::ResourceBuilder,
    session::Session,
};

fn fetch(session: &Session, namespace: Option<&str>, arguments: &[&str]) -> Vec<Value> {
    let Ok(mut builder) = ResourceBuilder::from_session(session) else { return Vec::new() };
    builder.filenames.clear();
    builder.kustomize.clear();
    builder.select_all = false;
    builder.label_selector.clear();
    builder.field_selector.clear();
    builder.arguments = arguments.iter().map(ToString::to_string).collect();
    builder.allow_empty_selector = true;
    builder.flatten = true;
    builder.continue_on_error = true;
    if let Some(namespace) = namespace {
        builder.namespace = namespace.to_owned();
        builder.all_namespaces = false;
    }
    let infos = builder.build(session).map(|result| result.infos).unwrap_or_default();
    infos.into_iter().map(|info| info.object).collect()
}

fn with_prefix(words: impl Iterator<Item = String>, text: &str) -> Vec<String> {
    words.filter(|word| !word.is_empty() && word.starts_with(text)).collect()
}

/// Names of objects of a resource.
pub fn list_names(session: &Session, resource: &str, text: &str) -> Vec<String> {
    with_prefix(fetch(session, None, &[resource]).iter().map(|object| name_of(object).to_owned()), text)
}

/// Pods of a namespace as `NAMESPACE/POD:`.
pub fn list_pods_of(session: &Session, namespace: &str, text: &str) -> Vec<String> {
    let pods = fetch(session, Some(namespace), &["pod"]);
    with_prefix(pods.iter().map(|pod| format!("{namespace}/{}:", name_of(pod))), text)
}

/// Resources that can be read, the last of a list separated by commas.
pub fn list_resources(session: &Session, text: &str) -> Vec<String> {
    let Ok(data) = session.discovery() else { return Vec::new() };
    let (before, last) = text.rfind(',').map_or(("", text), |at| text.split_at(at + 1));
    let mut resources = data.preferred_resources();
    resources.retain(|resource| resource.verbs.iter().any(|verb| verb == "get"));
    resources.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    let names = resources.iter().map(|resource| match resource.group.as_str() {
        "" => resource.name.clone(),
        group => format!("{}.{group}", resource.name),
    });
    with_prefix(names, last).into_iter().map(|name| format!("{before}{name}")).collect()
}

/// Entries of a section of the kubeconfig.
pub fn list_entries(session: &Session, section: &str, text: &str) -> Vec<String> {
    match session.loading_rules().load(true) {
        Ok(config) => with_prefix(config.section(section).keys().cloned(), text),
        Err(_) => Vec::new(),
    }
}

/// Containers of a pod, or of a pod of `TYPE/NAME`.
pub fn list_containers(session: &Session, target: &str, text: &str) -> Vec<String> {
    let Some(pod) = find_pod(session, target) else { return Vec::new() };
    let all = pod.list("spec.initContainers").iter().chain(pod.list("spec.containers"));
    with_prefix(all.map(|container| container.text("name").to_owned()), text)
}

/// Ports of a pod or service as `LOCAL:REMOTE`.
pub fn list_ports(session: &Session, target: &str, text: &str) -> Vec<String> {
    let service = target.split_once('/').filter(|(kind, _)| ["service", "services", "svc"].contains(kind));
    let ports: Vec<i64> = match service {
        Some((_, name)) => {
            let services = fetch(session, None, &["service", name]);
            services
                .iter()
                .flat_map(|service| service.list("spec.ports"))
                .filter_map(|port| port.integer("port"))
                .collect()
        }
        None => {
            let pod = find_pod(session, target).unwrap_or_default();
            let ports = pod.list("spec.containers").iter().flat_map(|container| container.list("ports"));
            ports.filter_map(|port| port.integer("containerPort")).collect()
        }
    };
    let local = text.split(':').next().filter(|local| !local.is_empty());
    let pair = |port: &i64| format!("{}:{port}", local.map_or_else(|| port.to_string(), str::to_owned));
    with_prefix(ports.iter().map(pair), text)
}

fn find_pod(session: &Session, target: &str) -> Option<Value> {
    let Some((kind, name)) = target.split_once('/') else {
        return fetch(session, None, &["pod", target]).into_iter().next();
    };
    let object = fetch(session, None, &[kind, name]).into_iter().next()?;
    if object.text("kind") == "Pod" {
        return Some(object);
    }
    let labels = object.map("spec.selector.matchLabels").or_else(|| object.map("spec.selector"))?.clone();
    let pods = fetch(session, None, &["pod"]);
    pods.into_iter().find(|pod| {
        let of_pod = pod.map("metadata.labels");
        labels.iter().all(|(key, value)| of_pod.and_then(|all| all.get(key)) == Some(value))
    })
}
