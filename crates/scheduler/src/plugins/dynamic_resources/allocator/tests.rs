//! Tests of the search for devices.

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use serde_json::{Value, json};

use super::*;
use crate::plugins::dynamic_resources::device_requests::ClassLookup;

fn slice(devices: Value, more: Value) -> Arc<k8s_openapi::api::resource::v1::ResourceSlice> {
    let mut spec = json!({"driver": "gpu.com", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": devices});
    json_patch_merge(&mut spec, &more);
    Arc::new(serde_json::from_value(json!({"metadata": {"name": spec["pool"]["name"]}, "spec": spec})).unwrap())
}

fn json_patch_merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key.as_str()] = value.clone();
    }
}

fn claim(devices: Value) -> Arc<ResourceClaim> {
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "1"}, "spec": {"devices": devices}});
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn exactly(name: &str, more: Value) -> Value {
    let mut request = json!({"deviceClassName": "gpu"});
    json_patch_merge(&mut request, &more);
    json!({"name": name, "exactly": request})
}

fn input(
    slices: &[Arc<k8s_openapi::api::resource::v1::ResourceSlice>],
    allocated: &[&Arc<ResourceClaim>],
) -> AllocatorInput {
    let mut state = AllocatedState::default();
    for claim in allocated {
        state.add(claim.status.as_ref().unwrap().allocation.as_ref().unwrap());
    }
    AllocatorInput {
        slices: Arc::new(SliceIndex::new(slices)),
        allocated: Arc::new(state),
        timeout: Duration::ZERO,
        features: DeviceFeatures { binding_conditions: true, consumable_capacity: true, taints: true },
        free_counters: Mutex::default(),
    }
}

/// Renders the allocation of each claim as `request=device` pairs, or the error.
fn allocate(input: &AllocatorInput, claims: &[Arc<ResourceClaim>]) -> String {
    let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
    let node = Arc::new(NodeView::from_node(&serde_json::from_value(node).unwrap()));
    let class: DeviceClass = serde_json::from_value(json!({"metadata": {"name": "gpu"}, "spec": {}})).unwrap();
    let class = Arc::new(class);
    let classes: ClassLookup = Box::new(move |name| (name == "gpu").then(|| class.clone()));
    let claims = claims.iter().map(|claim| Arc::new(ClaimRequests::new(claim.clone(), &classes).unwrap())).collect();
    match allocate_devices(input, &SelectorCache::default(), claims, &node) {
        Ok(None) => "none".into(),
        Err(error) => error.to_string(),
        Ok(Some(choice)) => {
            let devices = choice.results("n").into_iter().map(|allocation| {
                let results = allocation.devices.unwrap().results.unwrap();
                let pairs = results.iter().map(|result| format!("{}={}", result.request, result.device));
                pairs.collect::<Vec<_>>().join(" ")
            });
            devices.collect::<Vec<_>>().join(", ")
        }
    }
}

fn with_allocation(claim: &Arc<ResourceClaim>, device: Value) -> Arc<ResourceClaim> {
    let mut claim = (**claim).clone();
    let mut result = json!({"request": "r", "driver": "gpu.com", "pool": "n", "device": ""});
    json_patch_merge(&mut result, &device);
    claim.status = Some(serde_json::from_value(json!({"allocation": {"devices": {"results": [result]}}})).unwrap());
    Arc::new(claim)
}

#[test]
fn devices_in_use_are_not_allocated_again() {
    let slices = [slice(json!([{"name": "a"}, {"name": "b"}]), json!({}))];
    let one = claim(json!({"requests": [exactly("r", json!({}))]}));
    let used = with_allocation(&one, json!({"device": "a"}));
    assert_eq!(allocate(&input(&slices, &[]), &[one.clone(), one.clone()]), "r=a, r=b");
    assert_eq!(allocate(&input(&slices, &[&used]), std::slice::from_ref(&one)), "r=b");
    assert_eq!(allocate(&input(&slices, &[&used]), &[one.clone(), one]), "none");
    let admin = claim(json!({"requests": [exactly("r", json!({"adminAccess": true}))]}));
    assert_eq!(allocate(&input(&slices, &[&used]), &[admin]), "r=a");
}

#[test]
fn all_devices_and_choices_are_tried_in_order() {
    let slices = [slice(json!([{"name": "a"}, {"name": "b"}]), json!({}))];
    let all = claim(json!({"requests": [exactly("r", json!({"allocationMode": "All"}))]}));
    assert_eq!(allocate(&input(&slices, &[]), std::slice::from_ref(&all)), "r=a r=b");
    let used = with_allocation(&all, json!({"device": "b"}));
    assert_eq!(allocate(&input(&slices, &[&used]), std::slice::from_ref(&all)), "none");
    let incomplete =
        [slice(json!([{"name": "a"}]), json!({"pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}}))];
    let message = "claim ns/c, request r: asks for all devices, but resource pool gpu.com/n is currently being updated";
    assert_eq!(allocate(&input(&incomplete, &[]), &[all]), message);
    let choice = |name: &str, count: i64| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let choices = claim(json!({"requests": [{"name": "r", "firstAvailable": [choice("many", 3), choice("few", 2)]}]}));
    assert_eq!(allocate(&input(&slices, &[]), &[choices]), "r/few=a r/few=b");
    let many = claim(json!({"requests": [exactly("r", json!({"count": 33}))]}));
    assert!(allocate(&input(&slices, &[]), &[many]).contains("exceeds the claim limit of 32"));
}

#[test]
fn constraints_lead_to_other_choices() {
    let device = |name: &str, numa: i64| json!({"name": name, "attributes": {"numa": {"int": numa}}});
    let slices = [slice(json!([device("a", 0), device("b", 1), device("c", 1)]), json!({}))];
    let constrained = |kind: &str| {
        let mut constraint = json!({});
        constraint[kind] = "gpu.com/numa".into();
        claim(json!({"requests": [exactly("r", json!({"count": 2}))], "constraints": [constraint]}))
    };
    assert_eq!(allocate(&input(&slices, &[]), &[constrained("matchAttribute")]), "r=b r=c");
    assert_eq!(allocate(&input(&slices, &[]), &[constrained("distinctAttribute")]), "r=a r=b");
}

#[test]
fn partitions_share_counters_over_slices() {
    let uses = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": memory}}}]});
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
    let counters = json!([{"name": "s", "counters": {"memory": {"value": "10Gi"}}}]);
    let slices = [
        slice(Value::Null, json!({"pool": pool, "sharedCounters": counters})),
        slice(json!([uses("whole", "10Gi"), uses("half", "5Gi"), uses("rest", "5Gi")]), json!({"pool": pool})),
    ];
    let one = claim(json!({"requests": [exactly("r", json!({}))]}));
    let used = with_allocation(&one, json!({"device": "half"}));
    assert_eq!(allocate(&input(&slices, &[]), std::slice::from_ref(&one)), "r=whole");
    assert_eq!(allocate(&input(&slices, &[&used]), std::slice::from_ref(&one)), "r=rest");
    assert_eq!(allocate(&input(&slices, &[]), &[one.clone(), one.clone()]), "r=half, r=rest");
    assert_eq!(allocate(&input(&slices[1..], &[]), &[one]), "none");
}

#[test]
fn shared_devices_are_allocated_until_their_capacity_ends() {
    let shared = json!([{"name": "a", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10Gi"}}}]);
    let slices = [slice(shared, json!({}))];
    let part =
        |size: &str| claim(json!({"requests": [exactly("r", json!({"capacity": {"requests": {"memory": size}}}))]}));
    let used =
        with_allocation(&part("4Gi"), json!({"device": "a", "shareID": "1", "consumedCapacity": {"memory": "4Gi"}}));
    assert_eq!(allocate(&input(&slices, &[&used]), &[part("3Gi"), part("3Gi")]), "r=a, r=a");
    assert_eq!(allocate(&input(&slices, &[&used]), &[part("3Gi"), part("4Gi")]), "none");
    let all = claim(json!({"requests": [exactly("r", json!({}))]}));
    assert_eq!(allocate(&input(&slices, &[&used]), &[all]), "none");
}

#[test]
fn taints_keep_claims_without_toleration_away() {
    let tainted = json!([{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}]);
    let slices = [slice(tainted, json!({}))];
    let claim_with =
        |tolerations: Value| claim(json!({"requests": [exactly("r", json!({"tolerations": tolerations}))]}));
    assert_eq!(allocate(&input(&slices, &[]), &[claim_with(json!([]))]), "none");
    let tolerates = json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]);
    assert_eq!(allocate(&input(&slices, &[]), &[claim_with(tolerates)]), "r=a");
}
