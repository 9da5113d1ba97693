//! PodResizeValidator: rejects resizes of running pods beyond the capacity of their node.

use api::{Value, meta, quantity::Quantity, resource_list, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PodResizeValidator",
    enabled_by_default: true,
    rules: &[ResourceRule { resource: ("", "pods"), subresources: &["resize"], operations: &[Operation::Update] }],
    construct: |_| Ok(Box::new(PodResizeValidator)),
};

struct PodResizeValidator;

#[async_trait]
impl Plugin for PodResizeValidator {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let name = meta::string_at(pod, &["spec", "nodeName"]);
        let generation = |pod: &Value| meta::integer_at(pod, &["metadata", "generation"]);
        if name.is_empty() || attributes.old.is_some_and(|old| generation(old) == generation(pod)) {
            return Ok(());
        }
        let Some(node) = attributes.get_object(("", "v1", "nodes"), "", name).await? else {
            return Err(attributes.new_forbidden(pod, format!("node {name:?} not found")));
        };
        let os = meta::string_at(&node, &["metadata", "labels", "kubernetes.io/os"]);
        if !matches!(os, "" | "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
            return Err(new_infeasible_error(attributes, pod, &why, "UnsupportedPlatform"));
        }
        match insufficient_resources(pod, &node).as_slice() {
            [] => Ok(()),
            init => {
                let why = format!("node didn't have enough allocatable resources: {}", init.join("; "));
                Err(new_infeasible_error(attributes, pod, &why, "NodeCapacity"))
            }
        }
    }
}

fn insufficient_resources(pod: &Value, node: &Value) -> Vec<String> {
    let mut requested = resource_list::pod_resources(pod, "requests");
    resource_list::add_resources(
        &mut requested,
        &resource_list::parse_resource_list(meta::value_at(pod, &["spec", "overhead"])),
    );
    let has = resource_list::parse_resource_list(meta::value_at(node, &["status", "allocatable"]));
    let amount = |list: &resource_list::ResourceList, name: &str| list.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut init = Vec::new();
    let (requested_cpu, has_cpu) = (amount(&requested, "cpu"), amount(&has, "cpu"));
    if requested_cpu > has_cpu {
        init.push(format!("cpu, requested: {}, allocatable: {}", requested_cpu.millis(), has_cpu.millis()));
    }
    let (requested_memory, has_memory) = (amount(&requested, "memory"), amount(&has, "memory"));
    if requested_memory > has_memory {
        init.push(format!("memory, requested: {}, allocatable: {}", requested_memory.value(), has_memory.value()));
    }
    init
}

fn new_infeasible_error(attributes: &AdmissionAttributes<'_>, pod: &Value, why: &str, reason: &str) -> Status {
    let mut status = attributes.new_forbidden(pod, why);
    if let Some(details) = &mut status.details {
        details["causes"] = json!([{"reason": reason}]);
    }
    status
}
