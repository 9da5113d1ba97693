//! Evaluates requests against quotas: the usage of a request, the quotas that match it, and their usage after it.

use std::collections::BTreeSet;

use api::{
    Value, meta,
    quantity::Quantity,
    quota::{self, QuotaResource},
    resource_list::{self, ResourceList},
};
use apiserver_core::clock;

use crate::{AdmissionAttributes, DenialReason};

/// The resource of a request as quotas identify it.
pub fn quota_resource<'a>(attributes: &AdmissionAttributes<'_>) -> QuotaResource<'a> {
    let resource = attributes.resource();
    QuotaResource { group: resource.group, resource: resource.name }
}

/// A request as quotas evaluate it: the object and its usage.
pub struct QuotaRequest<'a> {
    /// The resource of the request.
    pub kind: QuotaResource<'a>,
    /// The object of the request.
    pub object: &'a Value,
    old: Option<&'a Value>,
    /// The usage of the object.
    pub usage: ResourceList,
    /// The increase over the usage of the old object.
    growth: ResourceList,
    /// Whether this is a status update, which is charged but never rejected.
    is_report: bool,
}

impl<'a> QuotaRequest<'a> {
    /// Computes the usage of a request.
    pub fn new(attributes: &AdmissionAttributes<'a>, object: &'a Value) -> Self {
        let (kind, now) = (quota_resource(attributes), clock::now().as_second());
        let usage = kind.usage(object, now);
        let mut growth = usage.clone();
        if let Some(old) = attributes.old {
            for (name, amount) in kind.usage(old, now) {
                let left = growth.get(&name).copied().unwrap_or(Quantity::ZERO).minus(amount);
                growth.insert(name, if left.is_negative() { Quantity::ZERO } else { left });
            }
        }
        Self { kind, object, old: attributes.old, usage, growth, is_report: attributes.subresource() == "status" }
    }
}

/// A quota that matches a request.
pub struct MatchedQuota<'a> {
    /// The quota.
    pub quota: &'a Value,
    hard: ResourceList,
    used: ResourceList,
    /// The limited resource names that the request can consume.
    pub names: Vec<String>,
}

impl<'a> MatchedQuota<'a> {
    /// Matches a quota; `None` if it does not apply. Fails if a required resource is unset or the usage is unknown.
    pub fn match_quota(quota: &'a Value, request: &QuotaRequest<'_>) -> Result<Option<Self>, DenialReason> {
        let hard = resource_list::parse_resource_list(meta::value_at(quota, &["status", "hard"]));
        let names: Vec<String> = hard.keys().filter(|name| request.kind.matches_resource_name(name)).cloned().collect();
        if names.is_empty() || !request.kind.matches_scopes(quota, request.object) {
            return Ok(None);
        }
        let name = meta::name(quota);
        if request.kind == (QuotaResource { group: "", resource: "pods" })
            && let Some(why) = quota::missing_of_pod(request.object, &names)
        {
            return Err(format!("failed quota: {name}: {why}").into());
        }
        let used = resource_list::parse_resource_list(meta::value_at(quota, &["status", "used"]));
        if names.iter().any(|name| !used.contains_key(name)) {
            return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")).into());
        }
        Ok(Some(Self { quota, hard, used, names }))
    }

    /// Computes the new `status.used`; `None` if the usage does not increase. Fails if the quota is exceeded.
    pub fn charged_usage(&self, request: &QuotaRequest<'_>) -> Result<Option<ResourceList>, DenialReason> {
        let counted = request.old.is_some_and(|old| request.kind.matches_scopes(self.quota, old));
        let delta = if counted { &request.growth } else { &request.usage };
        let limited = |name: &String| self.hard.contains_key(name);
        let requested: ResourceList =
            delta.iter().filter(|(n, a)| limited(n) && !a.is_zero()).map(|(n, a)| (n.clone(), *a)).collect();
        if requested.is_empty() {
            return Ok(None);
        }
        let mut used = self.used.clone();
        resource_list::add_resources(&mut used, &requested);
        let exceeded: BTreeSet<&String> =
            requested.keys().filter(|name| used.get(*name) > self.hard.get(*name)).collect();
        if exceeded.is_empty() || request.is_report {
            return Ok(Some(used));
        }
        let format_amounts = |amounts: &ResourceList| {
            let exceeding = amounts.iter().filter(|(name, _)| exceeded.contains(name));
            exceeding.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
        };
        Err(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            meta::name(self.quota),
            format_amounts(&requested),
            format_amounts(&self.used),
            format_amounts(&self.hard)
        )
        .into())
    }
}
