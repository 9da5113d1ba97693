//! Calculates quota usage.

use std::collections::BTreeMap;

use api::{
    quantity::Quantity,
    quota,
    resource_list::{self, ResourceList},
};
use jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::discovery::DiscoveredResource;

/// Page size of lists.
const PAGE_SIZE: u32 = 500;

/// Returns a resource list with canonical quantities, for comparison.
pub(super) fn canonical_quantities(list: &Value) -> BTreeMap<String, String> {
    resource_list::parse_resource_list(Some(list))
        .into_iter()
        .map(|(name, amount)| (name, amount.to_string()))
        .collect()
}

/// Returns the resource as the quota evaluator's kind.
pub(super) fn quota_kind(kind: &DiscoveredResource) -> quota::QuotaResource<'_> {
    quota::QuotaResource { group: &kind.resource.group, resource: &kind.resource.plural }
}

/// Calculates the usage of everything that `quota` limits over objects of `kinds`.
pub(super) async fn calculate_usage(
    client: &Client,
    quota: &Value,
    kinds: &[DiscoveredResource],
) -> Result<Value, kube::Error> {
    let hard = resource_list::parse_resource_list(quota["spec"].get("hard"));
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
    let now = Timestamp::now().as_second();
    let mut sum: ResourceList = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    for kind in kinds {
        let (api, counted) = (kind.dynamic_api(client, namespace), quota_kind(kind));
        let mut page = ListParams::default().limit(PAGE_SIZE);
        loop {
            let list = api.list(&page).await?;
            for object in &list.items {
                let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                if counted.matches_scopes(quota, &object) {
                    let usage = counted.usage(&object, now);
                    resource_list::add_resources(
                        &mut sum,
                        &usage.into_iter().filter(|(name, _)| hard.contains_key(name)).collect(),
                    );
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(resource_list::encode_resource_list(&sum))
}
