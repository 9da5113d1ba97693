//! Counts what a quota limits.

use std::collections::BTreeMap;

use api::{
    amounts::{self, Amounts},
    quantity::Quantity,
    quota,
};
use jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::discovery::Kind;

/// How many objects are listed at once.
const PAGE: u32 = 500;

/// A list of amounts, comparable however it is written.
pub(super) fn amounts(list: &Value) -> BTreeMap<String, String> {
    amounts::read(Some(list)).into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
}

/// The kind as quotas know it.
pub(super) fn counted(kind: &Kind) -> quota::Kind<'_> {
    quota::Kind { group: &kind.resource.group, resource: &kind.resource.plural }
}

/// How much of everything that `quota` limits is used by objects of `kinds`.
pub(super) async fn used(client: &Client, quota: &Value, kinds: &[Kind]) -> Result<Value, kube::Error> {
    let hard = amounts::read(quota["spec"].get("hard"));
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
    let now = Timestamp::now().as_second();
    let mut sum: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    for kind in kinds {
        let (api, counted) = (kind.api(client, namespace), counted(kind));
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = api.list(&page).await?;
            for object in &list.items {
                let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                if counted.in_scope(quota, &object) {
                    let usage = counted.usage(&object, now);
                    amounts::add(&mut sum, &usage.into_iter().filter(|(name, _)| hard.contains_key(name)).collect());
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(amounts::write(&sum))
}
