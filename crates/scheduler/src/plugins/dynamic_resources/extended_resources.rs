//! Extended resources from devices: the claim that stands for a pod's requests for resources of device classes.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        core::v1::ContainerExtendedResourceRequest,
        resource::v1::{DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::{allocation_results::new_uid, claim_tracker::EXTENDED_CLAIM};
use crate::{
    framework::status::Status,
    objects::device_classes::DeviceClassResolver,
    views::node_info::NodeView,
    views::pod_info::{ContainerRequest, PodClass, PodInfo},
};

/// Name of a claim that was not created yet.
const IN_MEMORY_NAME: &str = "<extended-resources>";

/// The claim on a node, with the requests that stand for those of containers.
#[derive(Clone)]
pub struct ExtendedClaim {
    /// The claim.
    pub claim: Arc<ResourceClaim>,
    /// The requests by container.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

/// Whether devices provide a resource that the pod requests.
pub fn requests_devices(class: &PodClass, classes: &DeviceClassResolver) -> bool {
    class.extended_requests.iter().any(|request| request.amount != 0 && classes.provides(&request.resource))
}

/// Returns a claim of a pod without requests, to be created once a node is chosen.
pub fn claim_in_memory(pod: &PodInfo) -> ResourceClaim {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(pod.class.namespace.to_string()),
            name: Some(IN_MEMORY_NAME.into()),
            uid: Some(new_uid()),
            generate_name: Some(format!("{}-extended-resources-", pod.name)),
            owner_references: Some(vec![owner]),
            annotations: Some([(EXTENDED_CLAIM.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimSpec::default(),
        status: None,
    }
}

/// Whether a claim was not created yet.
pub fn is_in_memory(claim: &ResourceClaim) -> bool {
    claim.metadata.name.as_deref() == Some(IN_MEMORY_NAME)
}

/// Returns the claim with the requests that devices must fulfil on a node; `None` if there are none.
pub fn claim_on_node(
    claim: &ResourceClaim,
    class: &PodClass,
    node: &NodeView,
    classes: &DeviceClassResolver,
) -> Result<Option<ExtendedClaim>, Status> {
    if claim.spec.devices.as_ref().is_some_and(|devices| devices.requests.is_some()) {
        return Err(Status::unresolvable("cannot schedule extended resource claim"));
    }
    let mut from_devices: Vec<(Arc<str>, String)> = Vec::new();
    let mut names: Vec<&Arc<str>> =
        class.extended_requests.iter().filter(|request| request.amount != 0).map(|request| &request.resource).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let device_class = classes.class_of_resource(name).filter(|_| node.allocatable.scalar(name) == 0);
        match device_class {
            Some(device_class) => {
                from_devices.push((name.clone(), device_class.metadata.name.clone().unwrap_or_default()))
            }
            None if node.allocatable.has_scalar(name) => {}
            None => return Err(Status::unresolvable("cannot fit resource")),
        }
    }
    if from_devices.is_empty() {
        return Ok(None);
    }
    let (requests, mappings) = requests_and_mappings(&class.extended_requests, &from_devices);
    let mut claim = claim.clone();
    claim.spec.devices = Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() });
    Ok(Some(ExtendedClaim { claim: Arc::new(claim), mappings }))
}

/// A device request with the container that it is for.
struct ContainerDevices {
    container: usize,
    name: String,
    count: i64,
}

/// Returns one device request per long-lived container and resource. Init containers use the devices of the containers that
/// start after them; one further request covers the greatest rest.
fn requests_and_mappings(
    requests: &[ContainerRequest],
    resources: &[(Arc<str>, String)],
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let (mut all, mut mappings) = (Vec::new(), Vec::new());
    for (resource, device_class) in resources {
        let of_resource = requests.iter().filter(|request| request.resource == *resource && request.amount != 0);
        let (short, long): (Vec<_>, Vec<_>) = of_resource.partition(|request| request.is_init);
        let mapping = |request: &ContainerRequest, name: &str| ContainerExtendedResourceRequest {
            container_name: request.container.to_string(),
            resource_name: resource.to_string(),
            request_name: name.to_owned(),
        };
        let mut kept: Vec<ContainerDevices> = Vec::new();
        for request in &long {
            let name = request.device_request_name();
            mappings.push(mapping(request, &name));
            kept.push(ContainerDevices { container: request.container_index, name, count: request.amount });
        }
        let mut of_init: Vec<(&ContainerRequest, Option<String>)> = Vec::new();
        let mut greatest: Option<ContainerDevices> = None;
        for request in &short {
            let mut reused = 0;
            for later in kept.iter().filter(|later| later.container >= request.container_index) {
                if reused >= request.amount {
                    break;
                }
                reused += later.count;
                of_init.push((request, Some(later.name.clone())));
            }
            if reused < request.amount {
                of_init.push((request, None));
                let count = request.amount - reused;
                if greatest.as_ref().is_none_or(|greatest| greatest.count < count) {
                    let name = request.device_request_name();
                    greatest = Some(ContainerDevices { container: request.container_index, name, count });
                }
            }
        }
        let own = greatest.as_ref().map_or("", |greatest| greatest.name.as_str());
        mappings.extend(of_init.iter().map(|(request, name)| mapping(request, name.as_deref().unwrap_or(own))));
        let device_requests = greatest.into_iter().chain(kept).map(|devices| DeviceRequest {
            name: devices.name,
            exactly: Some(ExactDeviceRequest {
                device_class_name: device_class.clone(),
                allocation_mode: Some("ExactCount".into()),
                count: Some(devices.count),
                ..ExactDeviceRequest::default()
            }),
            first_available: None,
        });
        all.extend(device_requests);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    (all, mappings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, requests: &[(&str, i64)], mappings: &[(&str, &str)]) {
        let pod = json!({"metadata": {"name": "p", "uid": "1"}, "spec": spec});
        let pod = PodInfo::from_pod(&serde_json::from_value(pod).unwrap());
        let resources = [(Arc::from("example.com/gpu"), "gpu".to_owned())];
        let (device_requests, container_requests) = requests_and_mappings(&pod.class.extended_requests, &resources);
        let counts: Vec<(&str, i64)> = device_requests
            .iter()
            .map(|request| (request.name.as_str(), request.exactly.as_ref().and_then(|exact| exact.count).unwrap_or(0)))
            .collect();
        assert_eq!(counts, requests);
        let pairs: Vec<(&str, &str)> = container_requests
            .iter()
            .map(|mapping| (mapping.container_name.as_str(), mapping.request_name.as_str()))
            .collect();
        assert_eq!(pairs, mappings);
    }

    fn container(name: &str, gpus: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": "1", "example.com/gpu": gpus}}})
    }

    #[test]
    fn containers_have_a_request_each() {
        check(
            json!({"containers": [container("a", "1"), {"name": "b"}, container("c", "2")]}),
            &[("container-0-request-1", 1), ("container-2-request-1", 2)],
            &[("a", "container-0-request-1"), ("c", "container-2-request-1")],
        );
    }

    #[test]
    fn init_containers_use_devices_of_later_containers() {
        check(
            json!({"initContainers": [container("i", "3"), container("j", "1")], "containers": [container("a", "1")]}),
            &[("container-0-request-1", 2), ("container-2-request-1", 1)],
            &[
                ("a", "container-2-request-1"),
                ("i", "container-2-request-1"),
                ("i", "container-0-request-1"),
                ("j", "container-2-request-1"),
            ],
        );
    }
}
