//! Container environments: literals, references, service variables, and expansion of `$(NAME)`.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, Pod, Service};

use crate::{
    blocking::run_blocking,
    config_objects::{ConfigObjects, ObjectReferenceError},
    env_file::{self, EnvFileError},
    pod_spec::find_container,
    resources::{self, NodeResources},
};

/// Inputs of an environment.
pub struct EnvironmentSources<'a> {
    /// The pod, for `fieldRef`.
    pub pod: &'a Pod,
    /// ConfigMaps and Secrets of the pod's namespace.
    pub objects: &'a ConfigObjects<'a>,
    /// The pod's IPs.
    pub pod_ips: &'a [String],
    /// The node's IP.
    pub host_ip: String,
    /// Resources that the node can allocate.
    pub allocatable: &'a NodeResources,
    /// Services visible to the pod.
    pub services: Vec<std::sync::Arc<Service>>,
    /// Host paths of the volumes that `fileKeyRef` names.
    pub volume_paths: HashMap<String, PathBuf>,
}

/// An environment could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A referenced object or key is missing.
    #[error(transparent)]
    Missing(#[from] ObjectReferenceError),
    /// A `fileKeyRef` names a volume that the pod lacks.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    Volume(String),
    /// An environment file could not be parsed.
    #[error("couldn't parse env file: {0}")]
    File(#[from] EnvFileError),
    /// An environment file lacks a key.
    #[error("environment variable key {key:?} not found in file {path:?}")]
    FileKey {
        /// The key.
        key: String,
        /// The path in the volume.
        path: String,
    },
    /// The reference type is unsupported.
    #[error("{0}")]
    Unsupported(String),
}

/// Resolves the variables of `container` in order; a later duplicate replaces an earlier one.
pub async fn resolve_environment(
    container: &Container,
    sources: &EnvironmentSources<'_>,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut values: Vec<(String, String)> = service_variables(&sources.services);
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let data = if let Some(reference) = &from.config_map_ref {
            sources.objects.get_config_map(&reference.name, reference.optional).await?
        } else if let Some(reference) = &from.secret_ref {
            sources.objects.get_secret(&reference.name, reference.optional).await?
        } else {
            BTreeMap::new()
        };
        let text = |(key, value): (String, Vec<u8>)| (format!("{prefix}{key}"), String::from_utf8_lossy(&value).into());
        values.extend(data.into_iter().map(text));
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = variable_value(variable, container, sources, &values).await? {
            values.push((variable.name.clone(), value));
        }
    }
    let last: HashMap<String, usize> =
        values.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
    Ok(values.into_iter().enumerate().filter(|(index, (name, _))| last[name] == *index).map(|(_, pair)| pair).collect())
}

async fn variable_value(
    variable: &EnvVar,
    container: &Container,
    sources: &EnvironmentSources<'_>,
    known: &[(String, String)],
) -> Result<Option<String>, EnvironmentError> {
    match &variable.value_from {
        Some(source) => referenced_value(source, container, sources).await,
        None => Ok(Some(expand_references(variable.value.as_deref().unwrap_or_default(), known))),
    }
}

async fn referenced_value(
    source: &EnvVarSource,
    container: &Container,
    sources: &EnvironmentSources<'_>,
) -> Result<Option<String>, EnvironmentError> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if let Some(reference) = &source.config_map_key_ref {
        let value = sources.objects.get_config_map_key(&reference.name, &reference.key, reference.optional).await?;
        return Ok(value.map(text));
    }
    if let Some(reference) = &source.secret_key_ref {
        let value = sources.objects.get_secret_key(&reference.name, &reference.key, reference.optional).await?;
        return Ok(value.map(text));
    }
    if let Some(reference) = &source.field_ref {
        return downward_api_value(reference, sources).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        let divisor = reference.divisor.as_ref();
        let named = reference.container_name.as_deref().filter(|name| !name.is_empty());
        let named = named.map(|name| {
            let missing = || EnvironmentError::Unsupported(format!("container {name} not found"));
            find_container(sources.pod, name).ok_or_else(missing)
        });
        let named = named.transpose()?;
        let container = named.as_deref().unwrap_or(container);
        let value = resources::resource_field_value(container, &reference.resource, divisor, sources.allocatable);
        let unsupported =
            || EnvironmentError::Unsupported(format!("resourceFieldRef {:?} is not supported", reference.resource));
        return value.map(Some).ok_or_else(unsupported);
    }
    if let Some(reference) = &source.file_key_ref {
        return file_value(reference, sources).await;
    }
    Err(EnvironmentError::Unsupported("valueFrom names a source that is not supported".into()))
}

/// Returns a value of an environment file; `None` if it is absent and optional.
async fn file_value(
    reference: &FileKeySelector,
    sources: &EnvironmentSources<'_>,
) -> Result<Option<String>, EnvironmentError> {
    let missing = || EnvironmentError::Volume(reference.volume_name.clone());
    let volume = sources.volume_paths.get(&reference.volume_name).ok_or_else(missing)?.clone();
    let (path, key) = (PathBuf::from(&reference.path), reference.key.clone());
    let value = run_blocking(move || env_file::read_env_file(&volume, &path, &key)).await?;
    match (value.is_empty(), reference.optional) {
        (true, Some(true)) => Ok(None),
        (true, _) => Err(EnvironmentError::FileKey { key: reference.key.clone(), path: reference.path.clone() }),
        (false, _) => Ok(Some(value)),
    }
}

fn downward_api_value(
    reference: &ObjectFieldSelector,
    sources: &EnvironmentSources<'_>,
) -> Result<String, EnvironmentError> {
    let path = reference.field_path.as_str();
    Ok(match path {
        "status.podIP" => sources.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => sources.pod_ips.join(","),
        "status.hostIP" | "status.hostIPs" => sources.host_ip.clone(),
        _ => pod_field(sources.pod, path)
            .ok_or_else(|| EnvironmentError::Unsupported(format!("unsupported fieldPath: {path}")))?,
    })
}

/// Returns a field of the pod's metadata or spec by downward API path.
pub fn pod_field(pod: &Pod, path: &str) -> Option<String> {
    let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_string);
    if let Some(key) = subscript("metadata.labels['") {
        return Some(pod.metadata.labels.as_ref().and_then(|map| map.get(&key)).cloned().unwrap_or_default());
    }
    if let Some(key) = subscript("metadata.annotations['") {
        return Some(pod.metadata.annotations.as_ref().and_then(|map| map.get(&key)).cloned().unwrap_or_default());
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "metadata.labels" => Some(format_map(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Some(format_map(pod.metadata.annotations.as_ref())),
        "spec.nodeName" => Some(spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default()),
        "spec.serviceAccountName" => Some(spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()),
        _ => None,
    }
}

/// Formats a map as `key="value"` lines.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={}", serde_json::Value::from(value.as_str()));
    map.into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

/// Replaces `$(NAME)` by the value of a known NAME; `$$` is an escaped dollar sign.
pub fn expand_references(text: &str, known: &[(String, String)]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        if let Some(after) = rest.strip_prefix("$$") {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = reference {
            match known.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => result.push_str(value),
                None => result.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            result.push('$');
            rest = &rest[1..];
        }
    }
    result.push_str(rest);
    result
}

/// Returns the first `$(NAME)` without a value.
pub fn missing_reference(text: &str, known: &[(String, String)]) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            if !known.iter().any(|(known, _)| known == name) {
                return Some(name.into());
            }
            rest = after;
        }
    }
    None
}

/// Builds `<NAME>_SERVICE_HOST`, `<NAME>_SERVICE_PORT` and the Docker link variables.
fn service_variables(services: &[std::sync::Arc<Service>]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { continue };
        let prefix = service.metadata.name.as_deref().unwrap_or_default().to_uppercase().replace('-', "_");
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        let mut add = |name: String, value: String| variables.push((format!("{prefix}_{name}"), value));
        add("SERVICE_HOST".into(), ip.into());
        add("SERVICE_PORT".into(), first.port.to_string());
        for port in ports {
            if let Some(name) = &port.name {
                add(format!("SERVICE_PORT_{}", name.to_uppercase().replace('-', "_")), port.port.to_string());
            }
        }
        let url = |ip: &str, protocol: &str, port: i32| format!("{}://{}:{port}", protocol.to_lowercase(), ip);
        add("PORT".into(), url(ip, first.protocol.as_deref().unwrap_or("TCP"), first.port));
        for port in ports {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let base = format!("PORT_{}_{protocol}", port.port);
            add(base.clone(), url(ip, protocol, port.port));
            add(format!("{base}_PROTO"), protocol.to_lowercase());
            add(format!("{base}_PORT"), port.port.to_string());
            add(format!("{base}_ADDR"), ip.into());
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_expand_once_and_dollars_are_escaped() {
        let known = vec![("A".to_string(), "1".to_string()), ("B".to_string(), "$(A)".to_string())];
        for (text, expected) in [
            ("x$(A)y", "x1y"),
            ("$(B)", "$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("cost: $5 $", "cost: $5 $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand_references(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn pod_fields_are_found_by_path() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "p", "labels": { "a": "1", "b": "x\"y" } }, "spec": { "containers": [], "nodeName": "n" } }))
        .unwrap();
        let field = |path: &str| pod_field(&pod, path);
        assert_eq!(field("metadata.name").as_deref(), Some("p"));
        assert_eq!(field("metadata.labels['b']").as_deref(), Some("x\"y"));
        assert_eq!(field("metadata.labels").as_deref(), Some("a=\"1\"\nb=\"x\\\"y\""));
        assert_eq!(field("spec.nodeName").as_deref(), Some("n"));
        assert_eq!(field("spec.volumes"), None);
    }

    #[test]
    fn services_become_variables() {
        let service: Service = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "my-db" },
            "spec": { "clusterIP": "10.0.0.7", "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }] } }))
        .unwrap();
        let variables: HashMap<_, _> = service_variables(&[service.into()]).into_iter().collect();
        assert_eq!(variables["MY_DB_SERVICE_HOST"], "10.0.0.7");
        assert_eq!(variables["MY_DB_SERVICE_PORT_SQL"], "5432");
        assert_eq!(variables["MY_DB_PORT_5432_TCP_ADDR"], "10.0.0.7");
    }
}
