//! Quota evaluation: the usage of objects, and the scopes of quotas. Shared by admission and the quota controller,
//! which must agree.

mod pods;

use std::collections::BTreeSet;

use crate::{
    Value, meta,
    quantity::Quantity,
    resource_list::{self, ResourceList},
    selector::LabelSelector,
};

pub use pods::missing_requirements as missing_of_pod;

/// Core resources that are also counted by their plain name besides `count/…`.
const LEGACY_NAMES: &[&str] = &["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const SERVICE_RESOURCES: &[&str] = &["services", "services.nodeports", "services.loadbalancers"];
const CLAIM_RESOURCES: &[&str] = &["persistentvolumeclaims", "requests.storage"];
const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const DEVICE_CLASS_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// The number of devices charged for a request of all devices.
const ALL_DEVICES: i64 = 32;

/// A resource as quotas know it: group and plural name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaResource<'a> {
    /// The API group; empty for core.
    pub group: &'a str,
    /// The plural name, for example `pods`.
    pub resource: &'a str,
}

impl QuotaResource<'_> {
    fn is_core(self, resource: &str) -> bool {
        self.group.is_empty() && self.resource == resource
    }

    /// The name of the object count: `count/<resource>[.<group>]`.
    pub fn object_count_name(self) -> String {
        if self.group.is_empty() {
            format!("count/{}", self.resource)
        } else {
            format!("count/{}.{}", self.resource, self.group)
        }
    }

    /// Whether a resource name of a quota applies to objects of this resource.
    pub fn matches_resource_name(self, name: &str) -> bool {
        if name.strip_prefix("count/").is_some() {
            return name == self.object_count_name();
        }
        match self.resource {
            "pods" if self.group.is_empty() => pods::is_pod_resource(name),
            "services" if self.group.is_empty() => SERVICE_RESOURCES.contains(&name),
            "persistentvolumeclaims" if self.group.is_empty() => {
                CLAIM_RESOURCES.contains(&name)
                    || CLAIM_RESOURCES.iter().any(|claim| name.ends_with(&format!("{STORAGE_CLASS_SUFFIX}{claim}")))
            }
            "resourceclaims" if self.group == "resource.k8s.io" => name.ends_with(DEVICE_CLASS_SUFFIX),
            resource => self.group.is_empty() && resource == name && LEGACY_NAMES.contains(&name),
        }
    }

    /// Whether updates can change the usage; otherwise only creates are charged.
    pub fn is_charged_on_update(self) -> bool {
        self.group.is_empty() && matches!(self.resource, "pods" | "services" | "persistentvolumeclaims")
            || self.group == "resource.k8s.io" && self.resource == "resourceclaims"
    }

    /// Returns the usage of an object. `now` is in seconds.
    pub fn usage(self, object: &Value, now: i64) -> ResourceList {
        let one = Quantity::from_integer(1);
        let mut used = ResourceList::from([(self.object_count_name(), one)]);
        if self.is_core("pods") {
            resource_list::add_resources(&mut used, &pods::pod_usage(object, now));
        } else if self.is_core("services") {
            used.extend(service_usage(object));
        } else if self.is_core("persistentvolumeclaims") {
            used.extend(claim_usage(object));
        } else if self.group == "resource.k8s.io" && self.resource == "resourceclaims" {
            resource_list::add_resources(&mut used, &device_usage(object));
        } else if self.group.is_empty() && LEGACY_NAMES.contains(&self.resource) {
            used.insert(self.resource.to_owned(), one);
        }
        used
    }

    /// Whether an object matches all scopes of a quota.
    pub fn matches_scopes(self, quota: &Value, object: &Value) -> bool {
        scope_selectors(quota).iter().all(|scope| self.matches_scope(scope, object))
    }

    /// Whether an object matches a scope: `{scopeName, operator, values}`.
    pub fn matches_scope(self, scope: &Value, object: &Value) -> bool {
        if self.is_core("pods") {
            return pods::pod_matches_scope(scope, object);
        }
        if self.is_core("persistentvolumeclaims") && scope["scopeName"] == "VolumeAttributesClass" {
            let names = volume_attributes_classes(object);
            return if scope["operator"] == "Exists" { !names.is_empty() } else { scope_selects(scope, &names) };
        }
        false
    }
}

/// The scopes of a quota as scope selector requirements.
pub fn scope_selectors(quota: &Value) -> Vec<Value> {
    let plain = meta::list_at(quota, &["spec", "scopes"]).iter();
    let plain = plain.map(|name| serde_json::json!({"scopeName": name, "operator": "Exists"}));
    plain.chain(meta::list_at(quota, &["spec", "scopeSelector", "matchExpressions"]).iter().cloned()).collect()
}

/// Whether a scope's requirement selects one of some names.
fn scope_selects(scope: &Value, names: &BTreeSet<String>) -> bool {
    let key = meta::string_at(scope, &["scopeName"]);
    let expression = serde_json::json!({"matchExpressions": [
        {"key": key, "operator": scope["operator"], "values": scope.get("values").unwrap_or(&Value::Null)}]});
    let Ok(selector) = LabelSelector::from_object(&expression) else { return false };
    let matches = |name: Option<&str>| selector.matches_by(|label| name.filter(|_| label == key));
    if names.is_empty() { matches(None) } else { names.iter().any(|name| matches(Some(name))) }
}

fn service_usage(service: &Value) -> ResourceList {
    let ports = meta::list_at(service, &["spec", "ports"]);
    let kind = meta::string_at(service, &["spec", "type"]);
    let allocated = ports.iter().filter(|port| meta::integer_at(port, &["nodePort"]) != 0).count();
    let node_ports = match kind {
        "LoadBalancer" if service["spec"]["allocateLoadBalancerNodePorts"] == false => allocated,
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let whole = |count: usize| Quantity::from_integer(i64::try_from(count).unwrap_or(i64::MAX));
    ResourceList::from([
        ("services".to_owned(), whole(1)),
        ("services.nodeports".to_owned(), whole(node_ports)),
        ("services.loadbalancers".to_owned(), whole(usize::from(kind == "LoadBalancer"))),
    ])
}

fn claim_usage(claim: &Value) -> ResourceList {
    let class = match meta::string_at(claim, &["metadata", "annotations", CLASS_ANNOTATION]) {
        "" => meta::string_at(claim, &["spec", "storageClassName"]),
        class => class,
    };
    let mut used = ResourceList::from([(CLAIM_RESOURCES[0].to_owned(), Quantity::from_integer(1))]);
    let asked = Quantity::parse(meta::string_at(claim, &["spec", "resources", "requests", "storage"]));
    let given = Quantity::parse(meta::string_at(claim, &["status", "allocatedResources", "storage"]));
    if let Some(asked) = asked {
        used.insert(CLAIM_RESOURCES[1].to_owned(), given.filter(|given| asked < *given).unwrap_or(asked));
    }
    if !class.is_empty() {
        let by_class: Vec<_> =
            used.iter().map(|(name, amount)| (format!("{class}{STORAGE_CLASS_SUFFIX}{name}"), *amount)).collect();
        used.extend(by_class);
    }
    used
}

fn volume_attributes_classes(claim: &Value) -> BTreeSet<String> {
    const PLACES: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let names = PLACES.iter().map(|place| meta::string_at(claim, place));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Devices by class; of alternatives, the maximum of each.
fn device_usage(claim: &Value) -> ResourceList {
    let count = |request: &Value| {
        let number = match meta::string_at(request, &["allocationMode"]) {
            "All" => ALL_DEVICES,
            _ => meta::integer_at(request, &["count"]),
        };
        let class = meta::string_at(request, &["deviceClassName"]);
        ResourceList::from([(format!("{class}{DEVICE_CLASS_SUFFIX}"), Quantity::from_integer(number))])
    };
    let mut used = ResourceList::new();
    for request in meta::list_at(claim, &["spec", "devices", "requests"]) {
        let mut most = ResourceList::new();
        for other in meta::list_at(request, &["firstAvailable"]) {
            resource_list::raise_to_max(&mut most, &count(other));
        }
        if let Some(exactly) = meta::value_at(request, &["exactly"]) {
            most = count(exactly);
        }
        resource_list::add_resources(&mut used, &most);
    }
    used
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(resource: &str, object: Value, want: Value) {
        let used = QuotaResource { group: "", resource }.usage(&object, 0);
        assert_eq!(resource_list::encode_resource_list(&used), want, "{object}");
    }

    #[test]
    fn usage_of_each_resource() {
        check("configmaps", json!({}), json!({"count/configmaps": "1", "configmaps": "1"}));
        check("endpoints", json!({}), json!({"count/endpoints": "1"}));
        let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
        check(
            "services",
            json!({"spec": {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}}),
            json!({"count/services": "1", "services": "1", "services.loadbalancers": "1", "services.nodeports": "1"}),
        );
        check(
            "services",
            json!({"spec": {"type": "NodePort", "ports": ports}}),
            json!({"count/services": "1", "services": "1", "services.loadbalancers": "0", "services.nodeports": "2"}),
        );
        check(
            "persistentvolumeclaims",
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
                "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}),
        );
    }

    #[test]
    fn quota_names_match_resources() {
        let counts = |group, resource, name: &str| QuotaResource { group, resource }.matches_resource_name(name);
        assert!(counts("apps", "deployments", "count/deployments.apps"));
        assert!(!counts("apps", "deployments", "count/deployments"));
        assert!(counts("", "secrets", "secrets") && counts("", "pods", "limits.cpu"));
        assert!(counts("", "persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage"));
        assert!(!counts("", "configmaps", "pods"));
    }
}
