//! Translates store keys to etcd keys and back.
//!
//! kube-apiserver stores built-in resources by their plural alone, a few by an older name, and custom ones under their
//! group; store keys are always under the group. This table is the only place that knows the difference.

/// Built-in resources whose etcd path differs from the store key: etcd path, store path.
const RELOCATED_RESOURCES: [(&str, &str); 54] = [
    ("services/specs", "services"),
    ("services/endpoints", "endpoints"),
    ("minions", "nodes"),
    ("controllers", "replicationcontrollers"),
    ("controllerrevisions", "apps/controllerrevisions"),
    ("daemonsets", "apps/daemonsets"),
    ("deployments", "apps/deployments"),
    ("replicasets", "apps/replicasets"),
    ("statefulsets", "apps/statefulsets"),
    ("cronjobs", "batch/cronjobs"),
    ("jobs", "batch/jobs"),
    ("horizontalpodautoscalers", "autoscaling/horizontalpodautoscalers"),
    ("poddisruptionbudgets", "policy/poddisruptionbudgets"),
    ("ingress", "networking.k8s.io/ingresses"),
    ("ingressclasses", "networking.k8s.io/ingressclasses"),
    ("networkpolicies", "networking.k8s.io/networkpolicies"),
    ("ipaddresses", "networking.k8s.io/ipaddresses"),
    ("servicecidrs", "networking.k8s.io/servicecidrs"),
    ("clusterrolebindings", "rbac.authorization.k8s.io/clusterrolebindings"),
    ("clusterroles", "rbac.authorization.k8s.io/clusterroles"),
    ("rolebindings", "rbac.authorization.k8s.io/rolebindings"),
    ("roles", "rbac.authorization.k8s.io/roles"),
    ("csidrivers", "storage.k8s.io/csidrivers"),
    ("csinodes", "storage.k8s.io/csinodes"),
    ("csistoragecapacities", "storage.k8s.io/csistoragecapacities"),
    ("storageclasses", "storage.k8s.io/storageclasses"),
    ("volumeattachments", "storage.k8s.io/volumeattachments"),
    ("volumeattributesclasses", "storage.k8s.io/volumeattributesclasses"),
    ("priorityclasses", "scheduling.k8s.io/priorityclasses"),
    ("leases", "coordination.k8s.io/leases"),
    ("leasecandidates", "coordination.k8s.io/leasecandidates"),
    ("runtimeclasses", "node.k8s.io/runtimeclasses"),
    ("endpointslices", "discovery.k8s.io/endpointslices"),
    ("flowschemas", "flowcontrol.apiserver.k8s.io/flowschemas"),
    ("prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations"),
    ("mutatingwebhookconfigurations", "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
    ("validatingwebhookconfigurations", "admissionregistration.k8s.io/validatingwebhookconfigurations"),
    ("validatingadmissionpolicies", "admissionregistration.k8s.io/validatingadmissionpolicies"),
    ("validatingadmissionpolicybindings", "admissionregistration.k8s.io/validatingadmissionpolicybindings"),
    ("mutatingadmissionpolicies", "admissionregistration.k8s.io/mutatingadmissionpolicies"),
    ("mutatingadmissionpolicybindings", "admissionregistration.k8s.io/mutatingadmissionpolicybindings"),
    ("certificatesigningrequests", "certificates.k8s.io/certificatesigningrequests"),
    ("clustertrustbundles", "certificates.k8s.io/clustertrustbundles"),
    ("deviceclasses", "resource.k8s.io/deviceclasses"),
    ("resourceclaims", "resource.k8s.io/resourceclaims"),
    ("resourceclaimtemplates", "resource.k8s.io/resourceclaimtemplates"),
    ("resourceslices", "resource.k8s.io/resourceslices"),
    ("devicetaintrules", "resource.k8s.io/devicetaintrules"),
    ("resourcepoolstatusrequests", "resource.k8s.io/resourcepoolstatusrequests"),
    ("podcertificaterequests", "certificates.k8s.io/podcertificaterequests"),
    ("podgroups", "scheduling.k8s.io/podgroups"),
    ("workloads", "scheduling.k8s.io/workloads"),
    ("storageversions", "internal.apiserver.k8s.io/storageversions"),
    ("storageversionmigrations", "storagemigration.k8s.io/storageversionmigrations"),
];

/// The prefix of all store keys.
const KEY_PREFIX: &str = "/registry";

/// A layout of keys in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// As kube-apiserver does, below this prefix (`--etcd-prefix`), such as `/registry`.
    Upstream(String),
    /// This prefix in front of our key as it is.
    Plain(String),
}

impl KeyLayout {
    /// Translates a store key, or a prefix of keys, to its etcd key. A prefix is empty, `/registry/`, or that of one resource.
    pub fn to_etcd(&self, ours: &str) -> String {
        let prefix = match self {
            Self::Plain(prefix) => return format!("{prefix}{ours}"),
            Self::Upstream(prefix) => prefix,
        };
        let path = ours.strip_prefix(KEY_PREFIX).unwrap_or(ours);
        let path = path.strip_prefix('/').unwrap_or(path);
        format!("{prefix}/{}", translate_resource(path, |(theirs, ours)| (ours, theirs)))
    }

    /// Translates an etcd key to its store key; `None` if it is outside of the layout.
    pub fn to_ours(&self, etcd: &str) -> Option<String> {
        match self {
            Self::Plain(prefix) => etcd.strip_prefix(prefix).map(Into::into),
            Self::Upstream(prefix) => {
                let path = etcd.strip_prefix(prefix)?.strip_prefix('/')?;
                Some(format!("{KEY_PREFIX}/{}", translate_resource(path, |row| row)))
            }
        }
    }
}

fn translate_resource(
    path: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> String {
    for (from, to) in RELOCATED_RESOURCES.map(direction) {
        if let Some(rest) = path.strip_prefix(from)
            && rest.starts_with('/')
        {
            return format!("{to}{rest}");
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_those_of_kube_apiserver() {
        let layout = KeyLayout::Upstream("/registry".into());
        for (ours, theirs) in [
            ("/registry/pods/default/a", "/registry/pods/default/a"),
            ("/registry/apps/deployments/default/nginx", "/registry/deployments/default/nginx"),
            ("/registry/services/default/kubernetes", "/registry/services/specs/default/kubernetes"),
            ("/registry/endpoints/default/kubernetes", "/registry/services/endpoints/default/kubernetes"),
            ("/registry/nodes/n1", "/registry/minions/n1"),
            ("/registry/networking.k8s.io/ingresses/a/b", "/registry/ingress/a/b"),
            ("/registry/networking.k8s.io/ingressclasses/a", "/registry/ingressclasses/a"),
            ("/registry/apps/deployments/", "/registry/deployments/"),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/x",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/x",
            ),
            ("/registry/example.com/deployments/a/b", "/registry/example.com/deployments/a/b"),
            ("/registry/", "/registry/"),
        ] {
            assert_eq!(layout.to_etcd(ours), theirs);
            assert_eq!(layout.to_ours(theirs).as_deref(), Some(ours));
        }
        assert_eq!(layout.to_etcd(""), "/registry/");
        assert_eq!(KeyLayout::Upstream("/a/b".into()).to_etcd("/registry/nodes/n"), "/a/b/minions/n");
        assert_eq!(layout.to_ours("/other/pods/a"), None);
        assert_eq!(KeyLayout::Plain("/p".into()).to_ours("/p/x").as_deref(), Some("/x"));
    }
}
