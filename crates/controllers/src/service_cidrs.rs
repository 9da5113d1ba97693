//! service-cidr-controller: keeps a ServiceCIDR that is being deleted until no IPAddress depends on it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::{
    api::networking::v1::{IPAddress, ServiceCIDR},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    ControllerContext, IpRange,
    controller::{Controller, ControllerWatches, run_controller},
};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Field manager and event source.
const COMPONENT: &str = "service-cidr-controller";
const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
const IP_ALLOCATOR: &str = "ipallocator.k8s.io";
/// Time for allocators to learn of a deletion before the range is released.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);
const BLOCKED_MESSAGE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

struct ServiceCidrController {
    client: Client,
    cidrs: SharedInformer<ServiceCIDR>,
    addresses: SharedInformer<IPAddress>,
    recorder: EventRecorder,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| ServiceCidrController {
        cidrs: context.informers.informer_for(),
        addresses: context.informers.informer_for(),
        recorder: EventRecorder::new(context.client.clone(), COMPONENT, None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for ServiceCidrController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.cidrs, |this, event, queue| {
            queue.add(event.object().name_any());
            if let ResourceEvent::Added(cidr) = event {
                overlapping_cidrs(&this.cidrs.list(), cidr).into_iter().for_each(|name| queue.add(name));
            }
        });
        watches.add(&self.addresses, |this, event, queue| {
            let is_update = matches!(event, ResourceEvent::Updated { .. });
            if let Some(address) = allocated_address(event.object()).filter(|_| !is_update) {
                containing_cidrs(&this.cidrs.list(), address).into_iter().for_each(|name| queue.add(name));
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        let Some(cidr) = self.cidrs.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let synced = match &cidr.metadata.deletion_timestamp {
            Some(Time(deleted_at)) => self.sync_deleted(&cidr, *deleted_at).await,
            None => self.sync_active(&cidr).await.map(|()| RequeueAction::AwaitChange),
        };
        match synced {
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            result => result,
        }
    }
}

impl ServiceCidrController {
    async fn sync_active(&self, cidr: &ServiceCIDR) -> Result<(), kube::Error> {
        if !has_finalizer(cidr) {
            let patch = Patch::Strategic(json!({"metadata": {"finalizers": [FINALIZER]}}));
            self.api().patch(&cidr.name_any(), &PatchParams::default(), &patch).await?;
        }
        let written = self.update_condition(cidr, "True", "", "Kubernetes Service CIDR is ready").await;
        written.inspect_err(|_| {
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            self.recorder.record_warning(cidr.object_ref(&()), "KubernetesServiceCIDRError", message);
        })
    }

    async fn sync_deleted(&self, cidr: &ServiceCIDR, deleted_at: Timestamp) -> Result<RequeueAction, kube::Error> {
        let addresses: Vec<IpAddr> =
            self.addresses.list().iter().filter_map(|address| allocated_address(address)).collect();
        if !can_delete(&self.cidrs.list(), cidr, &addresses) {
            self.update_condition(cidr, "False", "Terminating", BLOCKED_MESSAGE).await?;
            return Ok(RequeueAction::AwaitChange);
        }
        let elapsed = Duration::try_from(Timestamp::now().duration_since(deleted_at)).unwrap_or_default();
        if elapsed < DELETION_GRACE_PERIOD {
            return Ok(RequeueAction::After(DELETION_GRACE_PERIOD - elapsed));
        }
        if has_finalizer(cidr) {
            let patch = Patch::Strategic(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}));
            self.api().patch(&cidr.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }

    /// Applies the condition `Ready` unless it is the same.
    async fn update_condition(
        &self,
        cidr: &ServiceCIDR,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let conditions = cidr.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_same = |condition: &Condition| {
            condition.type_ == "Ready"
                && condition.status == status
                && condition.reason == reason
                && condition.message == message
        };
        if conditions.iter().any(is_same) {
            return Ok(());
        }
        let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": Time(Timestamp::now())});
        let patch = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": cidr.name_any()}, "status": {"conditions": [condition]}});
        let params = PatchParams::apply(COMPONENT).force();
        self.api().patch_status(&cidr.name_any(), &params, &Patch::Apply(patch)).await.map(drop)
    }

    fn api(&self) -> Api<ServiceCIDR> {
        Api::all(self.client.clone())
    }
}

fn has_finalizer(cidr: &ServiceCIDR) -> bool {
    cidr.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

fn ranges(cidr: &ServiceCIDR) -> Vec<IpRange> {
    let texts = cidr.spec.as_ref().and_then(|spec| spec.cidrs.as_deref()).unwrap_or_default();
    texts.iter().filter_map(|text| IpRange::parse_cidr(text)).collect()
}

/// Returns the address if the API server allocated it to a service.
fn allocated_address(address: &IPAddress) -> Option<IpAddr> {
    let is_managed = address.labels().get(MANAGED_BY_LABEL).is_some_and(|manager| manager == IP_ALLOCATOR);
    address.name_any().parse().ok().filter(|_| is_managed)
}

fn overlapping_cidrs(all: &[Arc<ServiceCIDR>], cidr: &ServiceCIDR) -> BTreeSet<String> {
    let own = ranges(cidr);
    let overlaps = |other: &Arc<ServiceCIDR>| ranges(other).iter().any(|range| own.iter().any(|o| range.overlaps(o)));
    all.iter().filter(|other| overlaps(other)).map(|other| other.name_any()).collect()
}

fn containing_cidrs(all: &[Arc<ServiceCIDR>], address: IpAddr) -> BTreeSet<String> {
    let contains = |cidr: &Arc<ServiceCIDR>| ranges(cidr).iter().any(|range| range.contains_service_address(address));
    all.iter().filter(|cidr| contains(cidr)).map(|cidr| cidr.name_any()).collect()
}

/// Whether no allocated address would be left without a ServiceCIDR.
fn can_delete(all: &[Arc<ServiceCIDR>], cidr: &ServiceCIDR, addresses: &[IpAddr]) -> bool {
    let name = cidr.name_any();
    let has_parent = |range: &IpRange| {
        let mut others = all.iter().filter(|other| other.name_any() != name);
        others.any(|other| ranges(other).iter().any(|parent| parent.contains_range(range)))
    };
    let is_only = |address: &IpAddr| {
        let containing = containing_cidrs(all, *address);
        containing.len() == 1 && containing.contains(&name)
    };
    ranges(cidr).iter().all(has_parent) || !addresses.iter().any(is_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(name: &str, ranges: &[&str]) -> Arc<ServiceCIDR> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": ranges}})).unwrap())
    }

    #[test]
    fn cidr_is_kept_while_an_address_has_no_other() {
        let all = [cidr("a", &["10.0.0.0/24"]), cidr("b", &["10.1.0.0/24"]), cidr("c", &["10.0.0.0/28"])];
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(can_delete(&all, &all[1], &[]));
        assert!(!can_delete(&all, &all[1], &[address("10.1.0.9")]));
        assert!(can_delete(&all, &all[2], &[address("10.0.0.9")]));
        assert!(can_delete(&all, &all[0], &[address("10.0.0.9")]));
        assert!(!can_delete(&all, &all[0], &[address("10.0.0.99")]));
    }

    #[test]
    fn related_cidrs_are_found() {
        let all = [cidr("a", &["10.0.0.0/24", "fd00::/112"]), cidr("b", &["10.1.0.0/24"])];
        assert_eq!(overlapping_cidrs(&all, &cidr("x", &["fd00::/120"])), ["a".to_owned()].into());
        assert_eq!(containing_cidrs(&all, "10.1.0.1".parse().unwrap()), ["b".to_owned()].into());
    }
}
