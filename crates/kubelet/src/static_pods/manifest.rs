//! Manifests of static pods: decoded, defaulted and validated like those that the API server gets.

use std::collections::BTreeMap;

use api::{
    decode::FieldValidation,
    defaults::apply_defaults,
    schema::{Resource, TypeId, schema},
    validate::validate_create,
    yaml::{YamlDecodeError, decode_yaml},
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::pod_manager::SOURCE_ANNOTATION;

/// Annotation with the uid that the kubelet computed.
const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// Annotation with the time of the first reading.
const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";

/// A manifest that is no pod.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It could not be decoded.
    #[error(transparent)]
    Decode(#[from] YamlDecodeError),
    /// Its kind is not Pod or PodList of `v1`.
    #[error("invalid pod: the kind is {0}")]
    Kind(String),
    /// A field is invalid.
    #[error("invalid pod: {0}")]
    Invalid(String),
    /// It needs an object of the API server.
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
    /// The pod does not fit its type.
    #[error(transparent)]
    Type(#[from] serde_json::Error),
}

/// Origin of a manifest.
#[derive(Clone, Copy, Debug)]
pub struct ManifestOrigin<'a> {
    /// `file` or `http`.
    pub source: &'static str,
    /// The path or URL.
    pub location: &'a str,
    /// This node.
    pub node_name: &'a str,
    /// Time of reading.
    pub seen: jiff::Timestamp,
}

/// Decodes one pod, or all pods of a list, in YAML or JSON.
pub fn decode_manifest(bytes: &[u8], origin: ManifestOrigin<'_>) -> Result<Vec<Pod>, ManifestError> {
    let kind = |name: &str| ManifestError::Kind(name.into());
    let (list_type, pod_type) = match (schema().type_named("core/v1.PodList"), schema().type_named("core/v1.Pod")) {
        (Some(list), Some(pod)) => (list, pod),
        _ => return Err(kind("unknown")),
    };
    let resource = schema().resource("", "v1", "pods").ok_or_else(|| kind("unknown"))?;
    let (pod, _) = decode_yaml(pod_type, bytes, FieldValidation::Ignore)?;
    match (pod["apiVersion"].as_str(), pod["kind"].as_str()) {
        (Some("v1"), Some("Pod")) => Ok(vec![complete_pod(pod, pod_type, resource, origin)?]),
        (Some("v1"), Some("PodList" | "List")) => {
            let (list, _) = decode_yaml(list_type, bytes, FieldValidation::Ignore)?;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().map(|pod| complete_pod(pod, pod_type, resource, origin)).collect()
        }
        (_, other) => Err(kind(other.unwrap_or("missing"))),
    }
}

/// Sets what the kubelet adds, defaults and validates.
fn complete_pod(
    mut pod: Value,
    pod_type: TypeId,
    resource: &Resource,
    origin: ManifestOrigin<'_>,
) -> Result<Pod, ManifestError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_string();
    if name.is_empty() {
        return Err(ManifestError::Invalid("name is needed for the pod".into()));
    }
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    let uid = match pod["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        Some(uid) => uid.to_string(),
        None => hash_manifest(&pod, origin),
    };
    let metadata = &mut pod["metadata"];
    metadata["uid"] = uid.as_str().into();
    metadata["name"] = format!("{name}-{}", origin.node_name.to_lowercase()).into();
    if metadata["namespace"].as_str().is_none_or(str::is_empty) {
        metadata["namespace"] = "default".into();
    }
    let mut annotations: BTreeMap<String, Value> =
        serde_json::from_value(metadata["annotations"].take()).unwrap_or_default();
    let seen = origin.seen.to_string();
    for (key, value) in [(HASH_ANNOTATION, uid.as_str()), (SOURCE_ANNOTATION, origin.source), (SEEN_ANNOTATION, &seen)]
    {
        annotations.insert(key.into(), value.into());
    }
    metadata["annotations"] = json!(annotations);
    pod["spec"]["nodeName"] = origin.node_name.into();
    pod["status"] = json!({ "phase": "Pending" });
    if origin.source == "file" {
        tolerate_everything(&mut pod["spec"]);
    }
    apply_defaults(pod_type, &mut pod);
    let errors = validate_create(resource, &pod);
    if !errors.is_empty() {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(ManifestError::Invalid(format!("[{}]", errors.join(", "))));
    }
    match find_api_reference(&pod["spec"]) {
        Some(referenced) => Err(ManifestError::Reference(referenced)),
        None => Ok(serde_json::from_value(pod)?),
    }
}

/// Static pods stay when the node has problems.
fn tolerate_everything(spec: &mut Value) {
    let all = json!({ "operator": "Exists", "effect": "NoExecute" });
    match &mut spec["tolerations"] {
        Value::Array(tolerations) if tolerations.contains(&all) => {}
        Value::Array(tolerations) => tolerations.push(all),
        absent => *absent = json!([all]),
    }
}

/// Returns the uid of a manifest: FNV-1a of the pod, its location and, for files, the node.
fn hash_manifest(pod: &Value, origin: ManifestOrigin<'_>) -> String {
    let location = match origin.source {
        "file" => format!("host:{}file:{}", origin.node_name, origin.location),
        _ => format!("url:{}", origin.location),
    };
    let text = format!("{pod}{location}");
    let step = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    format!("{:032x}", text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step))
}

/// Returns the kind of API object that the pod needs.
fn find_api_reference(spec: &Value) -> Option<&'static str> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    for volume in volumes {
        let projected = volume["projected"]["sources"].as_array().into_iter().flatten();
        for source in std::iter::once(volume).chain(projected) {
            let kinds = [
                ("secret", "secrets"),
                ("configMap", "configmaps"),
                ("persistentVolumeClaim", "persistentvolumeclaims"),
                ("ephemeral", "persistentvolumeclaims"),
                ("csi", "secrets"),
                ("clusterTrustBundle", "clustertrustbundles"),
                ("serviceAccountToken", "serviceaccounts"),
                ("podCertificate", "podcertificaterequests"),
            ];
            let needs = |field: &str| match field {
                "csi" => source["csi"]["nodePublishSecretRef"].is_object(),
                field => source[field].is_object(),
            };
            if let Some((_, kind)) = kinds.into_iter().find(|(field, _)| needs(field)) {
                return Some(kind);
            }
        }
    }
    let containers = ["initContainers", "containers"].map(|list| spec[list].as_array().into_iter().flatten());
    for container in containers.into_iter().flatten() {
        let env = container["env"].as_array().into_iter().flatten().map(|variable| &variable["valueFrom"]);
        for source in env.chain(container["envFrom"].as_array().into_iter().flatten()) {
            if source["secretKeyRef"].is_object() || source["secretRef"].is_object() {
                return Some("secrets");
            }
            if source["configMapKeyRef"].is_object() || source["configMapRef"].is_object() {
                return Some("configmaps");
            }
        }
    }
    let has = |field: &str| spec[field].as_array().is_some_and(|list| !list.is_empty());
    match () {
        () if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) => Some("serviceaccounts"),
        () if has("imagePullSecrets") => Some("secrets"),
        () if has("resourceClaims") => Some("resourceclaims"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Result<Vec<Pod>, String> {
        let origin = ManifestOrigin {
            source: "file",
            location: "/m/a.yaml",
            node_name: "node",
            seen: jiff::Timestamp::UNIX_EPOCH,
        };
        decode_manifest(text.as_bytes(), origin).map_err(|error| error.to_string())
    }

    const POD: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: nginx}]}\n";

    #[test]
    fn pod_gets_uid_name_and_defaults() {
        let pods = decode(POD).unwrap();
        let (metadata, spec) = (&pods[0].metadata, pods[0].spec.as_ref().unwrap());
        assert_eq!((metadata.name.as_deref(), metadata.namespace.as_deref()), (Some("web-node"), Some("default")));
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(
            (annotations[SOURCE_ANNOTATION].as_str(), annotations.get(HASH_ANNOTATION)),
            ("file", metadata.uid.as_ref())
        );
        assert_eq!((spec.restart_policy.as_deref(), spec.node_name.as_deref()), (Some("Always"), Some("node")));
        assert_eq!(spec.tolerations.as_ref().unwrap()[0].effect.as_deref(), Some("NoExecute"));
        let changed = decode(&POD.replace("nginx", "other")).unwrap();
        assert_ne!(changed[0].metadata.uid, metadata.uid);
        assert_eq!(decode(POD).unwrap()[0].metadata.uid, metadata.uid);
    }

    #[test]
    fn other_kinds_references_and_invalid_fields_are_refused() {
        let list =
            format!("{{apiVersion: v1, kind: PodList, items: [{}]}}", POD.replace('\n', ", ").trim_end_matches(", "));
        // Flow style needs braces around each item.
        let list = list.replace("[apiVersion", "[{apiVersion").replace("]}]}", "]}}]}");
        assert_eq!(decode(&list).map(|pods| pods.len()), Ok(1));
        assert!(decode("apiVersion: v1\nkind: Service\n").unwrap_err().contains("Service"));
        assert!(decode(&POD.replace("{name: web}", "{}")).unwrap_err().contains("name is needed"));
        assert!(decode(&POD.replace("name: c,", "name: C_,")).unwrap_err().contains("spec.containers[0].name"));
        let secret = POD.replace("spec: {", "spec: {volumes: [{name: s, secret: {secretName: x}}], ");
        assert_eq!(decode(&secret).unwrap_err(), "static pods may not reference secrets");
    }
}
