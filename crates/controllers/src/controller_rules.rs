//! RBAC rules that several controllers have, as `verbs groups resources`.

/// Writes events.
pub(crate) const EVENTS: &str = "create,patch,update core,events.k8s.io events";

/// Rules of the service account that the CertificateSigningRequest controllers share.
pub(crate) const CERTIFICATE_RULES: &[&str] = &[
    "delete,get,list,watch certificates.k8s.io certificatesigningrequests",
    "update certificates.k8s.io certificatesigningrequests/approval,certificatesigningrequests/status",
    "approve certificates.k8s.io signers named kubernetes.io/kube-apiserver-client-kubelet",
    "sign certificates.k8s.io signers named kubernetes.io/kube-apiserver-client,kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving,kubernetes.io/legacy-unknown",
    "create authorization.k8s.io subjectaccessreviews",
    EVENTS,
];

/// Rules of the service account that the node controllers share.
pub(crate) const NODE_RULES: &[&str] = &[
    "delete,get,list,patch,update,watch core nodes",
    "patch,update core nodes/status",
    "patch,update core pods/status",
    "delete,get,list,watch core pods",
    EVENTS,
];
