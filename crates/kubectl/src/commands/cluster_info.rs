//! `kubectl cluster-info` and `cluster-info dump`

use std::path::Path;

use api::Value;

use super::pod_selection::pod_running_timeout;
use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
    object::{ObjectFields, name_of, namespace_of},
    outln,
    output::write_out,
    printers::{format_typed_list, typed_list},
    resource::ResourceBuilder,
    rest::RestRequest,
    session::Session,
};

/// Prints where the control plane and its services are.
pub fn run(session: &Session) -> CommandResult {
    let mut builder = ResourceBuilder::from_session(session)?;
    if session.flags.string("namespace").is_empty() {
        builder.namespace = "kube-system".to_owned();
    }
    builder.label_selector = "kubernetes.io/cluster-service=true".to_owned();
    builder.arguments = vec!["services".to_owned()];
    let outcome = builder.visit(session, &mut |info| {
        let host = &session.client()?.settings.host;
        outln!("Kubernetes control plane is running at {host}");
        for service in info.object.list("items") {
            outln!("{} is running at {}", service_name(service), service_link(service, host));
        }
        Ok(())
    });
    outln!("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.");
    outcome
}

fn service_name(service: &Value) -> &str {
    let label = service.map("metadata.labels").and_then(|labels| labels.get("kubernetes.io/name"));
    label.and_then(Value::as_str).filter(|name| !name.is_empty()).unwrap_or_else(|| name_of(service))
}

fn service_link(service: &Value, host: &str) -> String {
    let ports = service.list("spec.ports");
    if let Some(ingress) = service.list("status.loadBalancer.ingress").first() {
        let address = if ingress.text("ip").is_empty() { ingress.text("hostname") } else { ingress.text("ip") };
        let link = |port: &Value| format!("http://{address}:{} ", port.integer("port").unwrap_or(0));
        return ports.iter().map(link).collect();
    }
    let mut name = name_of(service).to_owned();
    if let Some(port) = ports.first() {
        let secure = port.text("name") == "https" || port.integer("port") == Some(443);
        name = match (secure, port.text("name")) {
            (true, port) => format!("https:{name}:{port}"),
            (false, "") => name,
            (false, port) => format!("{name}:{port}"),
        };
    }
    format!("{host}/api/v1/namespaces/{}/services/{name}/proxy", namespace_of(service))
}

/// The lists of a namespace: file name, path prefix and kind.
const LISTS: [(&str, &str, &str); 7] = [
    ("events", "/api/v1", "EventList"),
    ("replication-controllers", "/api/v1", "ReplicationControllerList"),
    ("services", "/api/v1", "ServiceList"),
    ("daemonsets", "/apis/apps/v1", "DaemonSetList"),
    ("deployments", "/apis/apps/v1", "DeploymentList"),
    ("replicasets", "/apis/apps/v1", "ReplicaSetList"),
    ("pods", "/api/v1", "PodList"),
];

struct ClusterDump<'a> {
    session: &'a Session,
    directory: String,
    format: String,
    documents: usize,
}

/// `cluster-info dump`
pub fn run_dump(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let format = flags.string("output");
    if !["json", "yaml", "kyaml"].contains(&format.as_str()) {
        return Err(crate::printers::unknown_format(&format, &crate::printers::OBJECT_FORMATS));
    }
    pod_running_timeout(session)?;
    let (current, _) = session.namespace()?;
    let mut dump = ClusterDump { session, directory: flags.string("output-directory"), format, documents: 0 };
    dump.write_list("/api/v1/nodes", "NodeList", "nodes")?;
    let mut namespaces = flags.strings("namespaces");
    if flags.bool("all-namespaces") {
        let list = session.client()?.send_json(RestRequest::get("/api/v1/namespaces"))?;
        namespaces = list.list("items").iter().map(|namespace| name_of(namespace).to_owned()).collect();
    } else if namespaces.is_empty() {
        namespaces = vec!["kube-system".to_owned(), current];
    }
    for namespace in namespaces {
        dump.write_namespace(&namespace)?;
    }
    if dump.has_directory() {
        outln!("Cluster info dumped to {}", dump.directory);
    }
    Ok(())
}

impl ClusterDump<'_> {
    fn has_directory(&self) -> bool {
        !self.directory.is_empty() && self.directory != "-"
    }

    fn write(&self, name: &str, text: &str) -> CommandResult {
        if !self.has_directory() {
            write_out(text);
            return Ok(());
        }
        let path = Path::new(&self.directory).join(name);
        let failed = |path: &Path, error: &std::io::Error| {
            CommandError::new(format!("open {}: {}", path.display(), os_error(error)))
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
        }
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))
    }

    fn write_list(&mut self, path: &str, kind: &str, name: &str) -> CommandResult<Vec<Value>> {
        let list = self.session.client()?.send_json(RestRequest::get(path))?;
        let items = list.list("items").to_vec();
        let list = typed_list(&list, kind);
        let text = match self.format.as_str() {
            "json" => format!("{}\n", format_typed_list(&list)),
            "kyaml" => crate::printers::format_kyaml(&list),
            _ => {
                let separator = if self.documents > 0 { "---\n" } else { "" };
                format!("{separator}{}", api::yaml::write_document(&list))
            }
        };
        self.documents += 1;
        let extension = if self.format == "kyaml" { "txt" } else { &self.format };
        self.write(&format!("{name}.{extension}"), &text)?;
        Ok(items)
    }

    fn write_namespace(&mut self, namespace: &str) -> CommandResult {
        let mut pods = Vec::new();
        for (name, prefix, kind) in LISTS {
            let path = format!("{prefix}/namespaces/{namespace}/{}", name.replace('-', ""));
            pods = self.write_list(&path, kind, &format!("{namespace}/{name}"))?;
        }
        for pod in &pods {
            let mut text = String::new();
            for container in pod.list("spec.initContainers").iter().chain(pod.list("spec.containers")) {
                text += &self.container_log(pod, container.text("name"))?;
            }
            self.write(&format!("{namespace}/{}/logs.txt", name_of(pod)), &text)?;
        }
        Ok(())
    }

    fn container_log(&self, pod: &Value, container: &str) -> CommandResult<String> {
        let full = format!("{container} of pod {}/{}", namespace_of(pod), name_of(pod));
        let path = format!("/api/v1/namespaces/{}/pods/{}/log", namespace_of(pod), name_of(pod));
        let request = RestRequest::get(path).with_query("container", container);
        let log = match self.session.client()?.send(request) {
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => format!("Request log error: {error}\n"),
        };
        Ok(format!("==== START logs for container {full} ====\n{log}==== END logs for container {full} ====\n"))
    }
}
