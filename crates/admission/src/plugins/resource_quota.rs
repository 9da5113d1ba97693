//! ResourceQuota: rejects requests that would exceed a quota of their namespace.
//!
//! Requests are charged to a quota's `status.used` by a write with a resourceVersion precondition before the object is
//! stored, serialized per namespace. Concurrent requests are thus counted exactly, across any number of servers, and no
//! limit is exceeded. If the request fails after it was charged, the quota controller corrects the usage on its next
//! full count.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
};

use api::{
    Value, meta,
    quantity::Quantity,
    quota::{self, QuotaResource},
    resource_list::{self, ResourceList},
    status::Status,
};
use apiserver_core::{clock, loopback};
use async_trait::async_trait;
use tokio::sync::Mutex;

use super::quota_limits::Limited;
use crate::{AdmissionAttributes, NamespaceIndex, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "ResourceQuota",
    on: true,
    about: &[ResourceRule::everything(&[Operation::Create, Operation::Update])],
    make: |parts| {
        let limited = Limited::of(parts.config)?;
        let quotas = NamespaceIndex::of(parts, QUOTAS)?;
        Ok(Box::new(ResourceQuota { limited, quotas, turns: Turns::default(), hasher: RandomState::new() }))
    },
};

const QUOTAS: (&str, &str, &str) = ("", "v1", "resourcequotas");
/// API groups that are exempt from quotas.
const IGNORED: &[&str] = &["authentication.k8s.io", "authorization.k8s.io", "events.k8s.io"];
/// Number of locks that namespaces are hashed onto.
const TURNS: usize = 64;

struct ResourceQuota {
    limited: Limited,
    quotas: NamespaceIndex,
    /// Serializes charges by namespace.
    turns: Turns,
    hasher: RandomState,
}

struct Turns([Mutex<()>; TURNS]);

impl Default for Turns {
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
            (group, _, "") => !IGNORED.contains(&group) && (!update || kind(attributes).is_charged_on_update()),
            _ => false,
        };
        let namespace = attributes.namespace();
        counted && !namespace.is_empty() && (!self.limited.is_empty() || self.quotas.has_some(namespace))
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        if attributes.old.is_some_and(|old| !may_grow(attributes, object, old)) {
            return Ok(());
        }
        let namespace = attributes.namespace();
        let turn = (self.hasher.hash_one(namespace) % TURNS as u64) as usize;
        let _turn = self.turns.0[turn].lock().await;
        self.charge(attributes, object).await
    }
}

fn kind<'a>(attributes: &AdmissionAttributes<'_>) -> QuotaResource<'a> {
    let resource = attributes.resource();
    QuotaResource { group: resource.group, resource: resource.name }
}

/// Whether an update can increase usage. Pods are charged on creation, resize, and when they enter another scope.
fn may_grow(attributes: &AdmissionAttributes<'_>, object: &Value, old: &Value) -> bool {
    let terminating = |pod: &Value| meta::value_at(pod, &["spec", "activeDeadlineSeconds"]).is_some();
    !attributes.is_of("", "pods") || attributes.subresource() == "resize" || terminating(object) != terminating(old)
}

impl ResourceQuota {
    /// Checks the request against all quotas of its namespace, then charges them.
    async fn charge(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let subject = Subject::of(attributes, object);
        let quotas = attributes.all(QUOTAS, attributes.namespace()).await?;
        let forbidden = |why: String| attributes.forbidden(object, why);
        let mut interests = Vec::new();
        for quota in &quotas {
            interests.extend(Interest::of(quota, &subject).map_err(forbidden)?);
        }
        let negative: Vec<&str> =
            subject.usage.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            return Err(forbidden(format!("quota usage is negative for resource(s): {}", negative.join(","))));
        }
        self.limited.check(attributes, object, &subject, &quotas, &interests)?;
        let charged: Result<Vec<_>, String> = interests.iter().map(|interest| interest.charge(&subject)).collect();
        let charged: Vec<&Interest> =
            charged.map_err(forbidden)?.into_iter().zip(&interests).filter_map(|(used, i)| used.map(|_| i)).collect();
        if attributes.dry_run {
            return Ok(());
        }
        for interest in charged {
            self.write(attributes, object, &subject, meta::name(interest.quota)).await?;
        }
        Ok(())
    }

    /// Charges one quota, evaluated again at its current revision.
    async fn write(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        subject: &Subject<'_>,
        name: &str,
    ) -> Result<(), Status> {
        let quotas = loopback::find_resource("", "v1", "resourcequotas")?;
        let place = loopback::ObjectKey { resource: quotas, namespace: attributes.namespace(), name };
        let mut edit = |current: &Value| {
            let mut quota = current.clone();
            let forbidden = |why: String| attributes.forbidden(object, why);
            let used = match Interest::of(current, subject).map_err(forbidden)? {
                Some(interest) => interest.charge(subject).map_err(forbidden)?,
                None => None,
            };
            if let Some(used) = used {
                meta::field_mut(&mut quota, "status").insert("used".into(), resource_list::encode_resource_list(&used));
            }
            Ok(quota)
        };
        match attributes.registry.edit_status(place, &mut edit).await {
            // A deleted quota limits nothing.
            Err(status) if status.code == 404 => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

/// A request as quotas evaluate it: the object and its usage.
pub struct Subject<'a> {
    pub kind: QuotaResource<'a>,
    pub object: &'a Value,
    old: Option<&'a Value>,
    /// The usage of the object.
    pub usage: ResourceList,
    /// The increase over the usage of the old object.
    growth: ResourceList,
    /// Whether this is a status update, which is charged but never rejected.
    is_report: bool,
}

impl<'a> Subject<'a> {
    fn of(attributes: &AdmissionAttributes<'a>, object: &'a Value) -> Self {
        let (kind, now) = (kind(attributes), clock::now().as_second());
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
pub struct Interest<'a> {
    quota: &'a Value,
    hard: ResourceList,
    used: ResourceList,
    /// The limited resource names that the request can consume.
    pub names: Vec<String>,
}

impl<'a> Interest<'a> {
    /// Matches a quota; `None` if it does not apply. Fails if a required resource is unset or the usage is unknown.
    fn of(quota: &'a Value, subject: &Subject<'_>) -> Result<Option<Self>, String> {
        let hard = resource_list::parse_resource_list(meta::value_at(quota, &["status", "hard"]));
        let names: Vec<String> = hard.keys().filter(|name| subject.kind.matches_resource_name(name)).cloned().collect();
        if names.is_empty() || !subject.kind.matches_scopes(quota, subject.object) {
            return Ok(None);
        }
        let name = meta::name(quota);
        if subject.kind == (QuotaResource { group: "", resource: "pods" })
            && let Some(why) = quota::missing_of_pod(subject.object, &names)
        {
            return Err(format!("failed quota: {name}: {why}"));
        }
        let used = resource_list::parse_resource_list(meta::value_at(quota, &["status", "used"]));
        if names.iter().any(|name| !used.contains_key(name)) {
            return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
        }
        Ok(Some(Self { quota, hard, used, names }))
    }

    /// Computes the new `status.used`; `None` if the usage does not increase. Fails if the quota is exceeded.
    fn charge(&self, subject: &Subject<'_>) -> Result<Option<ResourceList>, String> {
        let counted = subject.old.is_some_and(|old| subject.kind.matches_scopes(self.quota, old));
        let delta = if counted { &subject.growth } else { &subject.usage };
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
        if exceeded.is_empty() || subject.is_report {
            return Ok(Some(used));
        }
        let shown = |amounts: &ResourceList| {
            let parts = amounts.iter().filter(|(name, _)| exceeded.contains(name));
            parts.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
        };
        Err(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            meta::name(self.quota),
            shown(&requested),
            shown(&self.used),
            shown(&self.hard)
        ))
    }
}
