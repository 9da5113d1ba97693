//! Plug-ins of one rule each: LimitPodHardAntiAffinityTopology, ExtendedResourceToleration, DenyServiceExternalIPs and
//! SecurityContextDeny.

use std::collections::BTreeSet;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

const WRITES: &[Operation] = &[Operation::Create, Operation::Update];
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Rejects required pod anti-affinity with a topology key other than the host name.
pub const ANTI_AFFINITY: PluginDescriptor = PluginDescriptor {
    name: "LimitPodHardAntiAffinityTopology",
    on: false,
    about: &[ResourceRule::object("", "pods", WRITES)],
    make: |_| Ok(Box::new(AntiAffinity)),
};
/// Adds tolerations for the extended resources that a pod requests.
pub const EXTENDED_RESOURCES: PluginDescriptor = PluginDescriptor {
    name: "ExtendedResourceToleration",
    on: false,
    about: &[ResourceRule::object("", "pods", WRITES)],
    make: |_| Ok(Box::new(ExtendedResources)),
};
/// Rejects services with new external IPs.
pub const EXTERNAL_IPS: PluginDescriptor = PluginDescriptor {
    name: "DenyServiceExternalIPs",
    on: false,
    about: &[ResourceRule::object("", "services", WRITES)],
    make: |_| Ok(Box::new(ExternalIps)),
};
/// Rejects pods that set SELinux options, users or groups in a security context.
pub const SECURITY_CONTEXT: PluginDescriptor = PluginDescriptor {
    name: "SecurityContextDeny",
    on: false,
    about: &[ResourceRule::object("", "pods", WRITES)],
    make: |_| Ok(Box::new(SecurityContext)),
};

struct AntiAffinity;
struct ExtendedResources;
struct ExternalIps;
struct SecurityContext;

#[async_trait]
impl Plugin for AntiAffinity {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let path = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        let keys = meta::list_at(object, &path).iter().map(|term| meta::string_at(term, &["topologyKey"]));
        match keys.into_iter().find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => Err(attributes.forbidden(
                object,
                format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                ),
            )),
        }
    }
}

#[async_trait]
impl Plugin for ExtendedResources {
    async fn admit(&self, _: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let containers =
            ["containers", "initContainers"].into_iter().flat_map(|list| meta::list_at(object, &["spec", list]));
        let requests =
            containers.filter_map(|container| meta::value_at(container, &["resources", "requests"])?.as_object());
        let extended = |name: &&String| name.contains('/') && !name.contains("kubernetes.io/");
        let names: BTreeSet<String> = requests.flat_map(|list| list.keys()).filter(extended).cloned().collect();
        for name in names {
            let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            let list = meta::field_mut(object, "spec").entry("tolerations").or_insert_with(|| json!([]));
            let Some(list) = list.as_array_mut() else { continue };
            if !list.iter().any(|known| pod::includes(known, &toleration)) {
                list.push(toleration);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Plugin for ExternalIps {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, service: &Value) -> Result<(), Status> {
        let addresses = |service: &Value| meta::list_at(service, &["spec", "externalIPs"]).to_vec();
        let known = attributes.old.map(addresses).unwrap_or_default();
        if addresses(service).iter().all(|address| known.contains(address)) {
            return Ok(());
        }
        Err(attributes.forbidden(service, "Use of external IPs is denied by admission control"))
    }
}

#[async_trait]
impl Plugin for SecurityContext {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let whole = ["supplementalGroups", "seLinuxOptions", "runAsUser", "fsGroup"];
        let refuse = |field: &str| Err(attributes.forbidden(object, format!("{field} is forbidden")));
        if let Some(field) =
            whole.iter().find(|field| is_set(meta::value_at(object, &["spec", "securityContext", field])))
        {
            return refuse(&format!("pod.Spec.SecurityContext.{}", exported(field)));
        }
        for container in pod::containers(object) {
            let set = |field: &&&str| is_set(meta::value_at(container, &["securityContext", field]));
            if let Some(field) = ["seLinuxOptions", "runAsUser"].iter().find(set) {
                return refuse(&format!("SecurityContext.{}", exported(field)));
            }
        }
        Ok(())
    }
}

fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty()))
}

/// The field's name in Go.
fn exported(field: &str) -> String {
    match field {
        "seLinuxOptions" => "SELinuxOptions".to_owned(),
        "fsGroup" => "FSGroup".to_owned(),
        field => field[..1].to_ascii_uppercase() + &field[1..],
    }
}
