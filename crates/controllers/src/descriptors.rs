//! The table of controllers: upstream's name, service account, RBAC rules and start function of each.
//!
//! The rules are those of the role `system:controller:<service account>` in the API server's bootstrap policy, which
//! grants them to the service account; a test compares the two tables.

use futures::{FutureExt, future::BoxFuture};

use crate::{
    ControllerContext, attach_detach, bootstrap_token, certificate_signing_request, cluster_role_aggregation,
    cluster_trust_bundle_publisher,
    controller_rules::{CERTIFICATE_RULES, EVENTS, NODE_RULES},
    cronjob, daemonset, deployment, disruption, endpoints, endpointslice, endpointslice_mirroring, ephemeral_volume,
    garbage_collector, job, namespace, node_ipam, node_lifecycle, persistent_volume, pod_certificate_request_cleaner,
    pod_gc, podautoscaler, replicaset, resource_claim, resource_quota, root_ca_publisher, service_account,
    service_account_token, service_cidrs, statefulset,
    storage_protection::{self, ProtectedResource},
    storage_version_gc, taint_eviction, ttl, ttl_after_finished, validating_admission_policy_status, volume_expander,
};

/// Starts a controller, which runs until its context's shutdown.
type StartFn = fn(ControllerContext) -> BoxFuture<'static, ()>;

/// A row of the table.
pub(crate) struct ControllerDescriptor {
    /// Upstream's controller name.
    pub(crate) name: &'static str,
    /// Upstream's older names, which `--controllers` accepts too.
    pub(crate) aliases: &'static [&'static str],
    /// The service account in `kube-system` that it acts as.
    pub(crate) service_account: &'static str,
    /// RBAC rules of the service account, as `verbs groups resources`.
    #[cfg_attr(not(test), expect(dead_code, reason = "granted by the API server's bootstrap policy"))]
    pub(crate) rules: &'static [&'static str],
    /// The start function.
    pub(crate) start: StartFn,
}

/// Controllers that `*` in `--controllers` leaves out.
pub(crate) const OFF_BY_DEFAULT: [&str; 2] = ["bootstrap-signer-controller", "token-cleaner-controller"];

/// All controllers.
pub(crate) static CONTROLLERS: &[ControllerDescriptor] = &[
    ControllerDescriptor {
        name: "deployment-controller",
        aliases: &["deployment"],
        service_account: "deployment-controller",
        rules: &[
            "get,list,update,watch apps,extensions deployments",
            "update apps,extensions deployments/status",
            "update apps,extensions deployments/finalizers",
            "create,delete,get,list,patch,update,watch apps,extensions replicasets",
            "get,list,update,watch core pods",
            EVENTS,
        ],
        start: |context| deployment::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "replicaset-controller",
        aliases: &["replicaset"],
        service_account: "replicaset-controller",
        rules: &[
            "get,list,update,watch apps,extensions replicasets",
            "update apps,extensions replicasets/status",
            "update apps,extensions replicasets/finalizers",
            "create,delete,list,patch,watch core pods",
            EVENTS,
        ],
        start: |context| replicaset::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "daemonset-controller",
        aliases: &["daemonset"],
        service_account: "daemon-set-controller",
        rules: &[
            "get,list,watch apps,extensions daemonsets",
            "update apps,extensions daemonsets/status",
            "update apps,extensions daemonsets/finalizers",
            "list,watch core nodes",
            "create,delete,list,patch,watch core pods",
            "create core pods/binding",
            "create,delete,get,list,patch,update,watch apps controllerrevisions",
            EVENTS,
        ],
        start: |context| daemonset::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "replicationcontroller-controller",
        aliases: &["replicationcontroller"],
        service_account: "replication-controller",
        rules: &[
            "get,list,update,watch core replicationcontrollers",
            "update core replicationcontrollers/status",
            "update core replicationcontrollers/finalizers",
            "create,delete,list,patch,watch core pods",
            EVENTS,
        ],
        start: |context| replicaset::run_replication_controller(context).boxed(),
    },
    ControllerDescriptor {
        name: "statefulset-controller",
        aliases: &["statefulset"],
        service_account: "statefulset-controller",
        rules: &[
            "list,watch core pods",
            "get,list,watch apps statefulsets",
            "update apps statefulsets/status",
            "update apps statefulsets/finalizers",
            "create,delete,get,patch,update core pods",
            "create,delete,get,list,patch,update,watch apps controllerrevisions",
            "create,get,list,watch core persistentvolumeclaims",
            "delete,update core persistentvolumeclaims",
            "update core pods/finalizers",
            EVENTS,
        ],
        start: |context| statefulset::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "namespace-controller",
        aliases: &["namespace"],
        service_account: "namespace-controller",
        rules: &[
            "delete,get,list,watch core namespaces",
            "update core namespaces/finalize,namespaces/status",
            "delete,deletecollection,get,list,watch * *",
        ],
        start: |context| namespace::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "garbage-collector-controller",
        aliases: &["garbagecollector"],
        service_account: "generic-garbage-collector",
        rules: &["delete,get,list,patch,update,watch * *", EVENTS],
        start: |context| garbage_collector::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "serviceaccount-controller",
        aliases: &["serviceaccount"],
        service_account: "service-account-controller",
        rules: &["create core serviceaccounts", EVENTS],
        start: |context| service_account::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "root-ca-certificate-publisher-controller",
        aliases: &["root-ca-cert-publisher"],
        service_account: "root-ca-cert-publisher",
        rules: &["create,update core configmaps", EVENTS],
        start: |context| root_ca_publisher::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "node-lifecycle-controller",
        aliases: &["nodelifecycle"],
        service_account: "node-controller",
        rules: NODE_RULES,
        start: |context| node_lifecycle::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "persistentvolumeclaim-protection-controller",
        aliases: &["pvc-protection"],
        service_account: "pvc-protection-controller",
        rules: &[
            "get,list,update,watch core persistentvolumeclaims",
            "update core persistentvolumeclaims/status",
            "get,list,watch core pods",
            EVENTS,
        ],
        start: |context| storage_protection::run(context, ProtectedResource::Claims).boxed(),
    },
    ControllerDescriptor {
        name: "persistentvolume-protection-controller",
        aliases: &["pv-protection"],
        service_account: "pv-protection-controller",
        rules: &["get,list,update,watch core persistentvolumes", EVENTS],
        start: |context| storage_protection::run(context, ProtectedResource::Volumes).boxed(),
    },
    ControllerDescriptor {
        name: "volumeattributesclass-protection-controller",
        aliases: &[],
        service_account: "volumeattributesclass-protection-controller",
        rules: &[
            "get,list,watch core persistentvolumeclaims",
            "get,list,watch core persistentvolumes",
            "get,list,update,watch storage.k8s.io volumeattributesclasses",
            EVENTS,
        ],
        start: |context| storage_protection::run(context, ProtectedResource::Classes).boxed(),
    },
    ControllerDescriptor {
        name: "persistentvolume-binder-controller",
        aliases: &["persistentvolume-binder"],
        service_account: "persistent-volume-binder",
        rules: &[
            "create,delete,get,list,update,watch core persistentvolumes",
            "update core persistentvolumes/status",
            "get,list,update,watch core persistentvolumeclaims",
            "update core persistentvolumeclaims/status",
            "create,delete,get,list,watch core pods",
            "get,list,watch storage.k8s.io storageclasses",
            "list,watch core nodes",
            EVENTS,
            "watch core events",
        ],
        start: |context| persistent_volume::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "persistentvolume-attach-detach-controller",
        aliases: &["attachdetach"],
        service_account: "attachdetach-controller",
        rules: &[
            "list,watch core persistentvolumeclaims,persistentvolumes",
            "get,list,watch core nodes",
            "patch,update core nodes/status",
            "list,watch core pods",
            EVENTS,
            "create,delete,get,list,watch storage.k8s.io volumeattachments",
            "get,list,watch storage.k8s.io csidrivers",
            "get,list,watch storage.k8s.io csinodes",
        ],
        start: |context| attach_detach::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "persistentvolume-expander-controller",
        aliases: &["persistentvolume-expander"],
        service_account: "expand-controller",
        rules: &[
            "get,list,patch,update,watch core persistentvolumes",
            "patch,update core persistentvolumeclaims/status",
            "get,list,watch core persistentvolumeclaims",
            EVENTS,
        ],
        start: |context| volume_expander::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "ephemeral-volume-controller",
        aliases: &["ephemeral-volume"],
        service_account: "ephemeral-volume-controller",
        rules: &[
            "get,list,watch core pods",
            "update core pods/finalizers",
            "create,get,list,watch core persistentvolumeclaims",
            EVENTS,
        ],
        start: |context| ephemeral_volume::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "resourceclaim-controller",
        aliases: &["resource-claim-controller"],
        service_account: "resource-claim-controller",
        rules: &[
            "get,list,watch core pods",
            "update core pods/finalizers",
            "create,delete,get,list,watch resource.k8s.io resourceclaims",
            "patch,update resource.k8s.io resourceclaims,resourceclaims/status",
            "patch,update core pods/status",
            EVENTS,
            "patch,update resource.k8s.io resourceclaims/binding",
        ],
        start: |context| resource_claim::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "resourcequota-controller",
        aliases: &["resourcequota"],
        service_account: "resourcequota-controller",
        rules: &["list,watch * *", "update core resourcequotas/status", EVENTS],
        start: |context| resource_quota::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "pod-garbage-collector-controller",
        aliases: &["podgc"],
        service_account: "pod-garbage-collector",
        rules: &["delete,list,watch core pods", "get,list,watch core nodes", "patch core pods/status"],
        start: |context| pod_gc::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "clusterrole-aggregation-controller",
        aliases: &["clusterrole-aggregation"],
        service_account: "clusterrole-aggregation-controller",
        rules: &["escalate,get,list,patch,update,watch rbac.authorization.k8s.io clusterroles"],
        start: |context| cluster_role_aggregation::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "validatingadmissionpolicy-status-controller",
        aliases: &[],
        service_account: "validatingadmissionpolicy-status-controller",
        rules: &[
            "get,list,watch admissionregistration.k8s.io validatingadmissionpolicies",
            "get,patch,update admissionregistration.k8s.io validatingadmissionpolicies/status",
            EVENTS,
        ],
        start: |context| validating_admission_policy_status::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "job-controller",
        aliases: &["job"],
        service_account: "job-controller",
        rules: &[
            "get,list,patch,update,watch batch jobs",
            "update batch jobs/status",
            "update batch jobs/finalizers",
            "create,delete,list,patch,watch core pods",
            EVENTS,
        ],
        start: |context| job::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "ttl-after-finished-controller",
        aliases: &["ttl-after-finished"],
        service_account: "ttl-after-finished-controller",
        rules: &["delete,get,list,watch batch jobs", EVENTS],
        start: |context| ttl_after_finished::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "cronjob-controller",
        aliases: &["cronjob"],
        service_account: "cronjob-controller",
        rules: &[
            "get,list,update,watch batch cronjobs",
            "create,delete,get,list,patch,update,watch batch jobs",
            "update batch cronjobs/status",
            "update batch cronjobs/finalizers",
            "delete,list,watch core pods",
            EVENTS,
        ],
        start: |context| cronjob::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "disruption-controller",
        aliases: &["disruption"],
        service_account: "disruption-controller",
        rules: &[
            "get,list,watch apps,extensions deployments",
            "get,list,watch apps,extensions replicasets",
            "get,list,watch core replicationcontrollers",
            "get,list,watch policy poddisruptionbudgets",
            "get,list,watch apps statefulsets",
            "update policy poddisruptionbudgets/status",
            "patch,update core pods/status",
            "get * */scale",
            EVENTS,
        ],
        start: |context| disruption::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "horizontal-pod-autoscaler-controller",
        aliases: &["horizontalpodautoscaling"],
        service_account: "horizontal-pod-autoscaler",
        rules: &[
            "get,list,watch autoscaling horizontalpodautoscalers",
            "update autoscaling horizontalpodautoscalers/status",
            "get,update * */scale",
            "list,watch core pods",
            "list,watch metrics.k8s.io pods",
            "get,list,watch custom.metrics.k8s.io *",
            "get,list,watch external.metrics.k8s.io *",
            EVENTS,
        ],
        start: |context| podautoscaler::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "endpoints-controller",
        aliases: &["endpoint"],
        service_account: "endpoint-controller",
        rules: &[
            "get,list,watch core pods,services",
            "create,delete,get,list,update,watch core endpoints",
            "create core endpoints/restricted",
            EVENTS,
        ],
        start: |context| endpoints::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "endpointslice-controller",
        aliases: &["endpointslice"],
        service_account: "endpointslice-controller",
        rules: &[
            "get,list,watch core nodes,pods,services",
            "update core services/finalizers",
            "create,delete,get,list,update,watch discovery.k8s.io endpointslices",
            EVENTS,
        ],
        start: |context| endpointslice::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "endpointslice-mirroring-controller",
        aliases: &["endpointslicemirroring"],
        service_account: "endpointslicemirroring-controller",
        rules: &[
            "get,list,watch core endpoints,services",
            "update core services/finalizers",
            "update core endpoints/finalizers",
            "create,delete,get,list,update,watch discovery.k8s.io endpointslices",
            EVENTS,
        ],
        start: |context| endpointslice_mirroring::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "certificatesigningrequest-signing-controller",
        aliases: &["csrsigning"],
        service_account: "certificate-controller",
        rules: CERTIFICATE_RULES,
        start: |context| certificate_signing_request::signer::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "certificatesigningrequest-approving-controller",
        aliases: &["csrapproving"],
        service_account: "certificate-controller",
        rules: CERTIFICATE_RULES,
        start: |context| certificate_signing_request::approver::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "certificatesigningrequest-cleaner-controller",
        aliases: &["csrcleaner"],
        service_account: "certificate-controller",
        rules: CERTIFICATE_RULES,
        start: |context| certificate_signing_request::cleaner::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "serviceaccount-token-controller",
        aliases: &["serviceaccount-token"],
        service_account: "tokens-controller",
        rules: &[],
        start: |context| service_account_token::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "legacy-serviceaccount-token-cleaner-controller",
        aliases: &["legacy-service-account-token-cleaner"],
        service_account: "legacy-service-account-token-cleaner",
        rules: &[
            "get core configmaps named kube-apiserver-legacy-service-account-token-tracking",
            "delete,patch core secrets",
        ],
        start: |context| service_account_token::legacy_cleaner::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "bootstrap-signer-controller",
        aliases: &["bootstrapsigner"],
        service_account: "bootstrap-signer",
        rules: &[],
        start: |context| bootstrap_token::signer::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "token-cleaner-controller",
        aliases: &["tokencleaner"],
        service_account: "token-cleaner",
        rules: &[],
        start: |context| bootstrap_token::cleaner::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "ttl-controller",
        aliases: &["ttl"],
        service_account: "ttl-controller",
        rules: &["list,patch,update,watch core nodes", EVENTS],
        start: |context| ttl::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "taint-eviction-controller",
        aliases: &[],
        service_account: "node-controller",
        rules: NODE_RULES,
        start: |context| taint_eviction::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "node-ipam-controller",
        aliases: &["nodeipam"],
        service_account: "node-controller",
        rules: NODE_RULES,
        start: |context| node_ipam::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "service-cidr-controller",
        aliases: &[],
        service_account: "service-cidrs-controller",
        rules: &[
            "get,list,patch,update,watch networking.k8s.io servicecidrs",
            "patch,update networking.k8s.io servicecidrs/finalizers",
            "patch,update networking.k8s.io servicecidrs/status",
            "get,list,watch networking.k8s.io ipaddresses",
            EVENTS,
        ],
        start: |context| service_cidrs::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "podcertificaterequest-cleaner-controller",
        aliases: &[],
        service_account: "podcertificaterequestcleaner",
        rules: &[],
        start: |context| pod_certificate_request_cleaner::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        aliases: &[],
        service_account: "kube-apiserver-serving-clustertrustbundle-publisher",
        rules: &[],
        start: |context| cluster_trust_bundle_publisher::run(context).boxed(),
    },
    ControllerDescriptor {
        name: "storageversion-garbage-collector-controller",
        aliases: &["storage-version-gc"],
        service_account: "storage-version-garbage-collector",
        rules: &[],
        start: |context| storage_version_gc::run(context).boxed(),
    },
];

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    /// Finds `bootstrap_policy.txt` in the sources of the workspace's crates.
    fn find_bootstrap_policy(directory: &Path) -> Option<PathBuf> {
        let entries: Vec<_> = fs::read_dir(directory).ok()?.flatten().collect();
        let file = entries.iter().find(|entry| entry.file_name() == "bootstrap_policy.txt").map(|entry| entry.path());
        file.or_else(|| {
            let directories = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            directories.into_iter().find_map(|entry| find_bootstrap_policy(&entry.path()))
        })
    }

    /// Parses the sections `controller NAME` followed by indented rules.
    fn parse_controller_rules(policy: &str) -> HashMap<&str, Vec<&str>> {
        let mut rules: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut current = None;
        for line in policy.lines() {
            match (line.strip_prefix("  "), line.strip_prefix("controller ")) {
                (Some(rule), _) => current.into_iter().for_each(|name| rules.entry(name).or_default().push(rule)),
                (None, name) => current = name,
            }
        }
        rules
    }

    #[test]
    fn rules_match_the_bootstrap_policy() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = find_bootstrap_policy(&crates).expect("the authorization crate contains bootstrap_policy.txt");
        let policy = fs::read_to_string(file).unwrap();
        let granted = parse_controller_rules(&policy);
        for controller in CONTROLLERS {
            let rules = granted.get(controller.service_account).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(controller.rules, rules, "{}", controller.name);
        }
    }

    #[test]
    fn controllers_have_unique_names() {
        for (index, controller) in CONTROLLERS.iter().enumerate() {
            for other in &CONTROLLERS[index + 1..] {
                assert_ne!(controller.name, other.name);
            }
        }
    }
}
