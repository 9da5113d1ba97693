//! Node-side admission: checks a pod before its worker starts, with upstream's reasons and messages.
//!
//! Pods are admitted one after the other, each against those admitted before. A pod that ran before the kubelet started
//! is not checked again. [`PodAdmission`] keeps what admitted pods hold until their workers have ended.

mod predicates;
mod sysctls;

pub use sysctls::normalize_sysctl_name;

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use crate::{
    cpu_manager::CpuManager,
    resize::PendingResize,
    resources::{NodeResources, QosClass, ResourceAmounts},
};

/// A pod that this node must not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRejection {
    /// CamelCase reason: `OutOfcpu`, `NodeAffinity`, `SysctlForbidden`…
    pub reason: String,
    /// Human-readable message.
    pub message: String,
}

impl AdmissionRejection {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// Requests and host ports of an admitted pod.
#[derive(Debug, Default)]
struct AdmittedPod {
    requests: ResourceAmounts,
    host_ports: BTreeSet<HostPort>,
}

/// A port of the node: protocol, address and number.
type HostPort = (String, String, i32);

/// The admitted pods, by uid.
pub struct PodAdmission {
    allocatable: NodeResources,
    /// Sysctls that pods may set beside the safe ones.
    allowed_unsafe_sysctls: Vec<String>,
    admitted: HashMap<String, AdmittedPod>,
    /// CPUs that containers have for themselves; none: no container has any.
    cpu_manager: Option<CpuManager>,
}

impl PodAdmission {
    /// Creates an admission stage without pods.
    pub fn new(
        allocatable: NodeResources,
        allowed_unsafe_sysctls: Vec<String>,
        cpu_manager: Option<CpuManager>,
    ) -> Self {
        Self { allocatable, allowed_unsafe_sysctls, admitted: HashMap::new(), cpu_manager }
    }

    /// Admits a pod or says why not. `node` is the API's view of this node, if it is known.
    pub fn admit_pod(&mut self, pod: &Pod, node: Option<&Node>) -> Result<(), AdmissionRejection> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        if !was_admitted_before(pod) {
            sysctls::check_sysctls(spec, &self.allowed_unsafe_sysctls)?;
            check_app_armor(spec)?;
            predicates::check_predicates(self, pod, spec, node)?;
            if let Some(manager) = &mut self.cpu_manager {
                manager.allocate_pod(pod).map_err(|error| {
                    let message = format!("Allocate failed due to {error}, which is unexpected");
                    AdmissionRejection::new("UnexpectedAdmissionError", message)
                })?;
            }
        }
        let uid = crate::pod_metadata::pod_uid(pod).to_string();
        let held = AdmittedPod {
            requests: crate::resources::pod_requests(spec),
            host_ports: predicates::host_ports(spec).collect(),
        };
        self.admitted.insert(uid, held);
        Ok(())
    }

    /// Sets aside the resources that a resized pod asks for, or says why it waits.
    pub fn resize_pod(&mut self, pod: &Pod) -> Result<(), PendingResize> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        if self.cpu_manager.is_some() && crate::resources::pod_qos_class(spec) == QosClass::Guaranteed {
            return Err(PendingResize {
                reason: "Infeasible",
                message: "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"".into(),
            });
        }
        let uid = crate::pod_metadata::pod_uid(pod);
        let held = self.admitted.remove(uid).unwrap_or_default();
        let outcome = predicates::check_resize(self, spec);
        let requests = match &outcome {
            Ok(()) => crate::resources::pod_requests(spec),
            Err(_) => held.requests,
        };
        self.admitted.insert(uid.into(), AdmittedPod { requests, host_ports: held.host_ports });
        outcome
    }

    /// Counts a pod that was admitted before; others are left to [`PodAdmission::admit_pod`].
    pub fn restore_pod(&mut self, pod: &Pod) {
        if was_admitted_before(pod) {
            // Such a pod is not checked.
            let _ = self.admit_pod(pod, None);
        }
    }

    /// Releases what a pod held.
    pub fn release_pod(&mut self, uid: &str) {
        self.admitted.remove(uid);
        if let Some(manager) = &mut self.cpu_manager {
            manager.release_pod(uid);
        }
    }

    /// Whether the pod is admitted.
    pub fn is_admitted(&self, uid: &str) -> bool {
        self.admitted.contains_key(uid)
    }

    /// The CPUs on which a container runs, as the kernel writes them; none: all.
    pub fn cpus_of(&self, uid: &str, container: &str) -> Option<String> {
        Some(self.cpu_manager.as_ref()?.cpus_of(uid, container).to_string())
    }

    /// Whether a container has CPUs of its own.
    pub fn has_own_cpus(&self, uid: &str, container: &str) -> bool {
        self.cpu_manager.as_ref().is_some_and(|manager| manager.has_own_cpus(uid, container))
    }

    /// Whether a container of the pod has CPUs of its own.
    pub fn is_pinned(&self, uid: &str) -> bool {
        self.cpu_manager.as_ref().is_some_and(|manager| manager.is_pinned(uid))
    }
}

/// Whether an earlier run of this kubelet has admitted the pod.
pub fn was_admitted_before(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let started = status.is_some_and(|status| status.start_time.is_some());
    let pending = status.and_then(|status| status.phase.as_deref()).is_none_or(|phase| phase == "Pending");
    started || !pending || pod.metadata.deletion_timestamp.is_some()
}

/// Rejects pods that ask for an AppArmor profile on a node without AppArmor.
fn check_app_armor(spec: &PodSpec) -> Result<(), AdmissionRejection> {
    let pod = spec.security_context.iter().filter_map(|context| context.app_armor_profile.as_ref());
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let containers = containers.filter_map(|container| container.security_context.as_ref()?.app_armor_profile.as_ref());
    let required = pod.chain(containers).any(|profile| profile.type_ != "Unconfined");
    if required && !has_app_armor() {
        return Err(AdmissionRejection::new(
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ));
    }
    Ok(())
}

fn has_app_armor() -> bool {
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    enabled.is_ok_and(|enabled| enabled.starts_with('Y'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(uid: &str, spec: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": uid, "uid": uid }, "spec": spec })).unwrap()
    }

    fn cpu(amount: &str) -> Value {
        json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": amount } } }] })
    }

    fn admission() -> PodAdmission {
        PodAdmission::new(
            NodeResources { cpu_millis: 2000, memory: 1 << 30, ephemeral_storage: 1 << 30, pods: 3 },
            Vec::new(),
            None,
        )
    }

    #[test]
    fn pods_are_admitted_until_a_resource_is_used_up() {
        let mut admission = admission();
        admission.admit_pod(&pod("a", cpu("1500m")), None).unwrap();
        let rejection = admission.admit_pod(&pod("b", cpu("1")), None).unwrap_err();
        let message = "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000";
        assert_eq!(rejection, AdmissionRejection::new("OutOfcpu", message));
        admission.release_pod("a");
        admission.admit_pod(&pod("b", cpu("1")), None).unwrap();
        for uid in ["c", "d"] {
            admission.admit_pod(&pod(uid, json!({ "containers": [] })), None).unwrap();
        }
        let rejection = admission.admit_pod(&pod("e", json!({ "containers": [] })), None).unwrap_err();
        assert_eq!(rejection.reason, "OutOfpods");
    }

    #[test]
    fn pod_that_ran_before_is_not_checked_but_counts() {
        let mut admission = admission();
        let mut running = pod("a", cpu("4"));
        running.status = Some(serde_json::from_value(json!({ "phase": "Running" })).unwrap());
        admission.admit_pod(&running, None).unwrap();
        assert!(admission.admit_pod(&pod("b", cpu("1")), None).is_err());
    }

    #[test]
    fn resize_is_deferred_or_infeasible() {
        let mut admission = admission();
        admission.admit_pod(&pod("a", cpu("500m")), None).unwrap();
        admission.admit_pod(&pod("b", cpu("500m")), None).unwrap();
        admission.resize_pod(&pod("a", cpu("1500m"))).unwrap();
        let deferred = admission.resize_pod(&pod("b", cpu("600m"))).unwrap_err();
        let message = "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000";
        assert_eq!((deferred.reason, deferred.message.as_str()), ("Deferred", message));
        let infeasible = admission.resize_pod(&pod("b", cpu("3"))).unwrap_err();
        let message = "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000";
        assert_eq!((infeasible.reason, infeasible.message.as_str()), ("Infeasible", message));
        admission.release_pod("a");
        admission.resize_pod(&pod("b", cpu("600m"))).unwrap();
    }

    #[test]
    fn rejections_have_upstreams_reasons() {
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n", "labels": { "zone": "a" } },
            "spec": { "taints": [{ "key": "gone", "effect": "NoExecute" }] } }))
        .unwrap();
        let check = |spec: Value, reason: &str, message: &str| {
            let mut admission = admission();
            let port = json!([{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80, "protocol": "TCP" }] }]);
            let tolerate = json!([{ "operator": "Exists" }]);
            let holder = json!({ "containers": port, "tolerations": tolerate });
            admission.admit_pod(&pod("holder", holder), Some(&node)).unwrap();
            let mut spec = spec;
            if spec["tolerations"].is_null() {
                spec["tolerations"] = tolerate;
            }
            let rejection = admission.admit_pod(&pod("p", spec), Some(&node)).unwrap_err();
            assert_eq!((rejection.reason.as_str(), rejection.message.as_str()), (reason, message));
        };
        let selector = json!({ "containers": [], "nodeSelector": { "zone": "b" } });
        check(
            selector,
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        );
        let port = json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 2, "hostPort": 80 }] }] });
        check(
            port,
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        );
        let untolerated = json!({ "containers": [], "tolerations": [] });
        check(
            untolerated,
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        );
        let windows = json!({ "containers": [], "os": { "name": "windows" } });
        check(windows, "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
        let sysctl = |name: &str| json!({ "containers": [], "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
        check(sysctl("kernel.msgmax"), "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted");
        let mut host = sysctl("net.ipv4.tcp_syncookies");
        host["hostNetwork"] = true.into();
        let message = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
        check(host, "SysctlForbidden", message);
    }
}
