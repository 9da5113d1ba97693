//! Plans the EndpointSlices that mirror an Endpoints object: one slice per subset and address type.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{EndpointAddress, Endpoints},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use crate::{
    controller_ref::new_controller_ref,
    service_endpoints::{
        LEADER_ANNOTATION, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL, TRIGGER_TIME_ANNOTATION,
        endpoint_set::{EndpointSet, endpoint_identity, is_same_endpoint, slice_endpoints},
        parse_ip_sloppy,
        ports::{EndpointPortsKey, ports_key, sort_ports},
        slice_name_prefix,
        subsets::repack_subsets,
    },
};

/// Value of the label `endpointslice.kubernetes.io/managed-by`.
pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_MIRROR_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Planned writes, and the numbers of addresses that are not mirrored.
#[derive(Debug, Default)]
pub(super) struct MirrorPlan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
    pub(super) invalid: usize,
    /// Includes invalid addresses.
    pub(super) skipped: usize,
}

/// Address type and ports of a slice.
type SliceKey = (&'static str, EndpointPortsKey);

/// Whether the object is mirrored: neither opted out nor a leader election lock.
pub(super) fn should_mirror(endpoints: &Endpoints) -> bool {
    endpoints.labels().get(SKIP_MIRROR_LABEL).is_none_or(|skip| skip != "true")
        && !endpoints.annotations().contains_key(LEADER_ANNOTATION)
}

/// Plans the slices of an Endpoints object.
pub(super) fn plan_slices(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>], max_endpoints: usize) -> MirrorPlan {
    let mut plan = MirrorPlan::default();
    let mut desired: BTreeMap<SliceKey, (Vec<EndpointPort>, EndpointSet)> = BTreeMap::new();
    for subset in repack_subsets(endpoints.subsets.as_deref().unwrap_or_default()) {
        let ports = slice_ports(subset.ports.as_deref().unwrap_or_default());
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all: Vec<_> = ready.chain(subset.not_ready_addresses.iter().flatten().map(|a| (a, false))).collect();
        let (total, mut added) = (all.len(), 0);
        for (address, ready) in all {
            if added >= max_endpoints {
                break;
            }
            match mirrored_endpoint(address, ready) {
                Some((type_, endpoint)) => {
                    let group = desired
                        .entry((type_, ports_key(&ports)))
                        .or_insert_with(|| (ports.clone(), EndpointSet::new()));
                    group.1.insert(endpoint_identity(&endpoint), endpoint);
                    added += 1;
                }
                None => plan.invalid += 1,
            }
        }
        plan.skipped += total - added;
    }
    let mut by_key: HashMap<SliceKey, Vec<Arc<EndpointSlice>>> = HashMap::new();
    for slice in existing {
        let type_ = if slice.address_type == "IPv6" { "IPv6" } else { "IPv4" };
        let ports = sort_ports(slice.ports.clone().unwrap_or_default());
        by_key.entry((type_, ports_key(&ports))).or_default().push(slice.clone());
    }
    for (key, (ports, set)) in desired {
        let mut slices = by_key.remove(&key).unwrap_or_default().into_iter();
        let first = slices.next();
        plan.delete.extend(slices);
        if let Some(slice) = first.as_ref().filter(|slice| is_up_to_date(slice, endpoints, &set)) {
            plan.unchanged.push(slice.clone());
            continue;
        }
        let mut slice = mirrored_slice(endpoints, ports, key.0);
        slice.endpoints = Some(set.into_values().take(max_endpoints).collect());
        match first {
            Some(first) => {
                slice.metadata.generate_name = None;
                slice.metadata.name = first.metadata.name.clone();
                plan.update.push(slice);
            }
            None => plan.create.push(slice),
        }
    }
    let mut left: Vec<_> = by_key.into_values().flatten().collect();
    left.sort_by_key(|slice| slice.name_any());
    plan.delete.extend(left);
    recycle_slices(&mut plan);
    plan
}

/// Turns creates into updates of slices of the same address type that would be deleted.
fn recycle_slices(plan: &mut MirrorPlan) {
    for mut slice in std::mem::take(&mut plan.create) {
        match plan.delete.iter().position(|old| old.address_type == slice.address_type) {
            Some(index) => {
                slice.metadata.name = plan.delete.remove(index).metadata.name.clone();
                plan.update.push(slice);
            }
            None => plan.create.push(slice),
        }
    }
}

fn slice_ports(ports: &[k8s_openapi::api::core::v1::EndpointPort]) -> Vec<EndpointPort> {
    let convert = |port: &k8s_openapi::api::core::v1::EndpointPort| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_default()),
        app_protocol: port.app_protocol.clone(),
    };
    sort_ports(ports.iter().map(convert).collect())
}

fn mirrored_endpoint(address: &EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let ip = parse_ip_sloppy(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..Default::default() }),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        ..Default::default()
    };
    Some((if ip.is_ipv6() { "IPv6" } else { "IPv4" }, endpoint))
}

fn mirrored_slice(endpoints: &Endpoints, ports: Vec<EndpointPort>, address_type: &str) -> EndpointSlice {
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME_LABEL.into(), endpoints.name_any());
    labels.insert(SLICE_MANAGED_BY_LABEL.into(), MANAGER.into());
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(slice_name_prefix(&endpoints.name_any())),
            namespace: endpoints.namespace(),
            labels: Some(labels),
            annotations: Some(mirrored_annotations(endpoints)),
            owner_references: Some(vec![new_controller_ref(endpoints)]),
            ..Default::default()
        },
        address_type: address_type.into(),
        endpoints: None,
        ports: Some(ports),
    }
}

fn mirrored_annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.annotations().clone();
    annotations.retain(|key, _| key != TRIGGER_TIME_ANNOTATION && key != LAST_APPLIED_ANNOTATION);
    annotations
}

fn is_up_to_date(slice: &EndpointSlice, endpoints: &Endpoints, desired: &EndpointSet) -> bool {
    let mut labels = slice.labels().clone();
    labels.retain(|key, _| key != SERVICE_NAME_LABEL && key != SLICE_MANAGED_BY_LABEL);
    let is_present =
        |endpoint: &Endpoint| desired.get(&endpoint_identity(endpoint)).is_some_and(|e| is_same_endpoint(e, endpoint));
    let is_former = slice.owner_references().iter().any(|owner| {
        owner.kind == "Endpoints"
            && owner.name == endpoints.name_any()
            && Some(&owner.uid) != endpoints.metadata.uid.as_ref()
    });
    slice_endpoints(slice).len() == desired.len()
        && slice_endpoints(slice).iter().all(is_present)
        && labels == *endpoints.labels()
        && *slice.annotations() == mirrored_annotations(endpoints)
        && !is_former
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(subsets: Value) -> Endpoints {
        serde_json::from_value(json!({"metadata": {"name": "db", "namespace": "ns", "uid": "e1", "labels": {"a": "b"},
            "annotations": {"kept": "1", TRIGGER_TIME_ANNOTATION: "x", LAST_APPLIED_ANNOTATION: "y"}}, "subsets": subsets}))
        .unwrap()
    }

    fn stored(plan: MirrorPlan) -> Vec<Arc<EndpointSlice>> {
        let all = plan.unchanged.into_iter().chain(plan.update.into_iter().chain(plan.create).map(Arc::new));
        let name = |(index, slice): (usize, Arc<EndpointSlice>)| {
            let mut slice = Arc::unwrap_or_clone(slice);
            slice.metadata.name.get_or_insert(format!("db-{index}"));
            Arc::new(slice)
        };
        all.enumerate().map(name).collect()
    }

    fn shape(plan: &MirrorPlan) -> (usize, usize, usize, usize) {
        (plan.create.len(), plan.update.len(), plan.delete.len(), plan.unchanged.len())
    }

    #[test]
    fn subsets_are_mirrored_per_address_type_and_only_once() {
        let ports = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
        let all = json!([{"ip": "10.0.0.1", "hostname": "a"}, {"ip": "fd00::1"}, {"ip": "bad"}]);
        let endpoints = endpoints(json!([{"addresses": all, "ports": ports}]));
        let plan = plan_slices(&endpoints, &[], 1000);
        assert_eq!((shape(&plan), plan.invalid, plan.skipped), ((2, 0, 0, 0), 1, 1));
        let slice = &plan.create[0];
        assert_eq!(json!(slice.metadata.annotations), json!({"kept": "1"}));
        assert_eq!(
            json!(slice.metadata.labels),
            json!({"a": "b", SERVICE_NAME_LABEL: "db", SLICE_MANAGED_BY_LABEL: MANAGER})
        );
        assert_eq!(
            json!(slice.endpoints),
            json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "a"}])
        );
        let slices = stored(plan);
        assert_eq!(shape(&plan_slices(&endpoints, &slices, 1000)), (0, 0, 0, 2));
    }

    #[test]
    fn changed_ports_recycle_the_slice() {
        let with_port = |port: i32| {
            endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": port, "protocol": "TCP"}]}]))
        };
        let slices = stored(plan_slices(&with_port(1), &[], 1000));
        let plan = plan_slices(&with_port(2), &slices, 1000);
        assert_eq!(shape(&plan), (0, 1, 0, 0));
        assert_eq!(plan.update[0].metadata.name.as_deref(), Some("db-0"));
        assert_eq!(shape(&plan_slices(&endpoints(json!([])), &slices, 1000)), (0, 0, 1, 0));
    }

    #[test]
    fn addresses_above_the_limit_are_skipped() {
        let addresses: Vec<_> = (1..=5).map(|number| json!({"ip": format!("10.0.0.{number}")})).collect();
        let plan = plan_slices(&endpoints(json!([{"addresses": addresses}])), &[], 3);
        assert_eq!((slice_endpoints(&plan.create[0]).len(), plan.skipped, plan.invalid), (3, 2, 0));
    }

    #[test]
    fn slices_of_recreated_endpoints_are_rewritten() {
        let mut endpoints = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
        let slices = stored(plan_slices(&endpoints, &[], 1000));
        endpoints.metadata.uid = Some("e2".into());
        assert_eq!(shape(&plan_slices(&endpoints, &slices, 1000)), (0, 1, 0, 0));
    }
}
