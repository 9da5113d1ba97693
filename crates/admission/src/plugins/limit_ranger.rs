//! LimitRanger: applies the default requests and limits of the namespace's LimitRanges to containers, and rejects pods
//! and claims that violate their constraints.

use api::{
    Value, meta,
    resource_list::{self, ResourceList},
    status::Status,
};
use async_trait::async_trait;
use authz::aggregate_errors;
use serde_json::json;

use super::limit_range_checks::{ResourceAmounts, check_max, check_max_ratio, check_max_request, check_min};
use crate::{
    AdmissionAttributes, DenialReason, NamespaceIndex, Operation, Plugin, PluginDescriptor, ResourceRule, pod,
};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "LimitRanger",
    enabled_by_default: true,
    rules: &[
        // The container resources of an existing pod change only through `resize`.
        ResourceRule::for_object("", "pods", &[Operation::Create]),
        ResourceRule { resource: ("", "pods"), subresources: &["resize"], operations: &[Operation::Update] },
        ResourceRule::for_object("", "persistentvolumeclaims", Operation::WRITES),
    ],
    construct: |init| Ok(Box::new(LimitRanger(NamespaceIndex::new(init, RANGES)?))),
};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const RANGES: (&str, &str, &str) = ("", "v1", "limitranges");

/// The plug-in, with an index of the namespaces that have LimitRanges.
struct LimitRanger(NamespaceIndex);

#[async_trait]
impl Plugin for LimitRanger {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.0.has_any(attributes.namespace()) && !attributes.old.is_some_and(meta::is_deleting)
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        if attributes.targets_resource("", "pods") {
            for range in list_limit_ranges(attributes).await? {
                apply_defaults(object, &range);
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        for range in list_limit_ranges(attributes).await? {
            let errors = if attributes.targets_resource("", "pods") {
                pod_errors(object, &range)
            } else {
                claim_errors(object, &range)
            };
            if let Some(error) = aggregate_errors(errors.into_iter().map(|error| error.0)) {
                return Err(attributes.new_forbidden(object, error));
            }
        }
        Ok(())
    }
}

async fn list_limit_ranges(attributes: &AdmissionAttributes<'_>) -> Result<Vec<Value>, Status> {
    attributes.list_objects(RANGES, attributes.namespace()).await
}

fn limit_items<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    meta::list_at(range, &["spec", "limits"]).iter().filter(move |item| item["type"] == kind)
}

/// Sets the default requests and limits of a LimitRange on containers, and records them in an annotation.
fn apply_defaults(object: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    for item in limit_items(range, "Container") {
        requests.extend(resource_list::parse_resource_list(meta::value_at(item, &["defaultRequest"])));
        limits.extend(resource_list::parse_resource_list(meta::value_at(item, &["default"])));
    }
    let mut notes = Vec::new();
    for (list, kind) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod::containers_mut(object, list) {
            let name = meta::string_at(container, &["name"]).to_owned();
            // Limits are set before requests, but listed after them in the annotation.
            let set_limits = set_missing_resources(container, "limits", &limits);
            let set_requests = set_missing_resources(container, "requests", &requests);
            for (set, what) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {kind} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        meta::object_mut(annotations).insert(ANNOTATION.into(), text.into());
    }
}

/// Sets missing resources to their defaults; returns the names of the resources set.
fn set_missing_resources(container: &mut Value, which: &str, defaults: &ResourceList) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let resources = meta::field_mut(container, "resources");
    let list = meta::object_mut(resources.entry(which).or_insert_with(|| json!({})));
    let missing: Vec<String> = defaults.keys().filter(|name| !list.contains_key(*name)).cloned().collect();
    for name in &missing {
        list.insert(name.clone(), defaults[name].to_string().into());
    }
    missing
}

fn pod_errors(object: &Value, range: &Value) -> Vec<DenialReason> {
    let mut errors = Vec::new();
    for item in meta::list_at(range, &["spec", "limits"]) {
        let amounts: Vec<ResourceAmounts> = match meta::string_at(item, &["type"]) {
            "Container" => ["containers", "initContainers"]
                .iter()
                .flat_map(|list| meta::list_at(object, &["spec", list]))
                .map(|container| ResourceAmounts {
                    requests: resource_list::parse_resource_list(meta::value_at(container, &["resources", "requests"])),
                    limits: resource_list::parse_resource_list(meta::value_at(container, &["resources", "limits"])),
                })
                .collect(),
            "Pod" => {
                vec![ResourceAmounts {
                    requests: resource_list::pod_resources(object, "requests"),
                    limits: resource_list::pod_resources(object, "limits"),
                }]
            }
            _ => continue,
        };
        let kind = meta::string_at(item, &["type"]);
        for amounts in &amounts {
            errors.extend(check_each_bound(item, "min", |name, bound| check_min(kind, name, bound, amounts)));
            errors.extend(check_each_bound(item, "max", |name, bound| check_max(kind, name, bound, amounts)));
            errors.extend(check_each_bound(item, "maxLimitRequestRatio", |name, bound| {
                check_max_ratio(kind, name, bound, amounts)
            }));
        }
    }
    errors
}

fn claim_errors(claim: &Value, range: &Value) -> Vec<DenialReason> {
    let kind = "PersistentVolumeClaim";
    let requests = resource_list::parse_resource_list(meta::value_at(claim, &["spec", "resources", "requests"]));
    let amounts = ResourceAmounts { requests, limits: ResourceList::new() };
    let mut errors = Vec::new();
    for item in limit_items(range, kind) {
        errors.extend(check_each_bound(item, "min", |name, bound| check_min(kind, name, bound, &amounts)));
        errors.extend(check_each_bound(item, "max", |name, bound| check_max_request(kind, name, bound, &amounts)));
    }
    errors
}

fn check_each_bound(
    item: &Value,
    field: &str,
    check: impl Fn(&str, api::quantity::Quantity) -> Result<(), DenialReason>,
) -> Vec<DenialReason> {
    let bounds = resource_list::parse_resource_list(meta::value_at(item, &[field]));
    bounds.into_iter().filter_map(|(name, bound)| check(&name, bound).err()).collect()
}
