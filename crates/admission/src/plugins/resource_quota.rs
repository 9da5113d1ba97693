//! ResourceQuota: rejects requests that would exceed a quota of their namespace.
//!
//! Requests are charged to a quota's `status.used` by a write with a resourceVersion precondition before the object is
//! stored, serialized per namespace. Concurrent requests are thus counted exactly, across any number of servers, and no
//! limit is exceeded. If the request fails after it was charged, the quota controller corrects the usage on its next
//! full count.

use std::hash::{BuildHasher, RandomState};

use api::{Value, meta, resource_list, status::Status};
use apiserver_core::loopback;
use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{
    limited_resources::LimitedResources,
    quota_evaluator::{MatchedQuota, QuotaRequest, quota_resource},
};
use crate::{AdmissionAttributes, DenialReason, NamespaceIndex, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "ResourceQuota",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(Operation::WRITES)],
    construct: |init| {
        let limited = LimitedResources::from_config(init.config)?;
        let quotas = NamespaceIndex::new(init, QUOTAS)?;
        Ok(Box::new(ResourceQuota { limited, quotas, locks: NamespaceLocks::default(), hasher: RandomState::new() }))
    },
};

const QUOTAS: (&str, &str, &str) = ("", "v1", "resourcequotas");
/// API groups that are exempt from quotas.
const IGNORED: &[&str] = &["authentication.k8s.io", "authorization.k8s.io", "events.k8s.io"];
/// Number of locks that namespaces are hashed onto.
const LOCK_COUNT: usize = 64;

struct ResourceQuota {
    limited: LimitedResources,
    quotas: NamespaceIndex,
    /// Serializes charges by namespace.
    locks: NamespaceLocks,
    hasher: RandomState,
}

struct NamespaceLocks([Mutex<()>; LOCK_COUNT]);

impl Default for NamespaceLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let resource = attributes.resource();
        let update = attributes.operation == Operation::Update;
        let counted = match (resource.group, resource.name, attributes.subresource()) {
            ("", "events" | "bindings" | "namespaces", _) => false,
            ("", "pods", "resize") | ("", "persistentvolumeclaims" | "resourceclaims", "status") => update,
            (group, _, "") => {
                !IGNORED.contains(&group) && (!update || quota_resource(attributes).is_charged_on_update())
            }
            _ => false,
        };
        let namespace = attributes.namespace();
        counted && !namespace.is_empty() && (!self.limited.is_empty() || self.quotas.has_any(namespace))
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        if attributes.old.is_some_and(|old| !may_increase_usage(attributes, object, old)) {
            return Ok(());
        }
        let namespace = attributes.namespace();
        let lock = (self.hasher.hash_one(namespace) % LOCK_COUNT as u64) as usize;
        let _guard = self.locks.0[lock].lock().await;
        self.check_and_charge(attributes, object).await
    }
}

/// Whether an update can increase usage. Pods are charged on creation, resize, and when they enter another scope.
fn may_increase_usage(attributes: &AdmissionAttributes<'_>, object: &Value, old: &Value) -> bool {
    let terminating = |pod: &Value| meta::value_at(pod, &["spec", "activeDeadlineSeconds"]).is_some();
    !attributes.targets_resource("", "pods")
        || attributes.subresource() == "resize"
        || terminating(object) != terminating(old)
}

impl ResourceQuota {
    /// Checks the request against all quotas of its namespace, then charges them.
    async fn check_and_charge(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let request = QuotaRequest::new(attributes, object);
        let quotas = attributes.list_objects(QUOTAS, attributes.namespace()).await?;
        let forbidden = |why: DenialReason| attributes.new_forbidden(object, why);
        let mut matched_quotas = Vec::new();
        for quota in &quotas {
            matched_quotas.extend(MatchedQuota::match_quota(quota, &request).map_err(forbidden)?);
        }
        let negative: Vec<&str> =
            request.usage.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            return Err(forbidden(format!("quota usage is negative for resource(s): {}", negative.join(",")).into()));
        }
        self.limited.check_coverage(attributes, object, &request, &quotas, &matched_quotas)?;
        let charged: Result<Vec<_>, DenialReason> =
            matched_quotas.iter().map(|matched| matched.charged_usage(&request)).collect();
        let charged: Vec<&MatchedQuota> = charged
            .map_err(forbidden)?
            .into_iter()
            .zip(&matched_quotas)
            .filter_map(|(used, i)| used.map(|_| i))
            .collect();
        if attributes.dry_run {
            return Ok(());
        }
        for matched in charged {
            self.charge_quota(attributes, object, &request, meta::name(matched.quota)).await?;
        }
        Ok(())
    }

    /// Charges one quota, evaluated again at its current revision.
    async fn charge_quota(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        request: &QuotaRequest<'_>,
        name: &str,
    ) -> Result<(), Status> {
        let quotas = loopback::find_resource("", "v1", "resourcequotas")?;
        let key = loopback::ObjectKey { resource: quotas, namespace: attributes.namespace(), name };
        let mut edit = |current: &Value| {
            let mut quota = current.clone();
            let forbidden = |why: DenialReason| attributes.new_forbidden(object, why);
            let used = match MatchedQuota::match_quota(current, request).map_err(forbidden)? {
                Some(matched) => matched.charged_usage(request).map_err(forbidden)?,
                None => None,
            };
            if let Some(used) = used {
                meta::field_mut(&mut quota, "status").insert("used".into(), resource_list::encode_resource_list(&used));
            }
            Ok(quota)
        };
        match attributes.registry.edit_status(key, &mut edit).await {
            // A deleted quota limits nothing.
            Err(status) if status.is_not_found() => Ok(()),
            result => result.map(|_| ()),
        }
    }
}
