//! The objects with which nodes join: `cluster-info`, and RBAC rules for bootstrap tokens and for joined nodes.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::{
    core::v1::ConfigMap,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, Client};
use serde_json::json;

use super::discovery::CLUSTER_INFO;
use crate::{
    apply_object::{apply_object, role_ref, subject},
    cluster_network::NETWORK_USER,
    local_path::LOCAL_PATH_USER,
};

/// The group of bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
const NODES: &str = "system:nodes";

/// Cluster roles and the groups that have them: name of the binding, role, group.
const BINDINGS: [(&str, &str, &str); 6] = [
    ("ferry:node-bootstrapper", "system:node-bootstrapper", BOOTSTRAPPERS),
    (
        "ferry:approve-node-client-csr",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        BOOTSTRAPPERS,
    ),
    (
        "ferry:approve-node-client-renewal",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        NODES,
    ),
    // A node's process is its kubelet, service proxy, DNS server, policies and overlay.
    ("ferry:node-proxier", "system:node-proxier", NODES),
    ("ferry:node-network", NETWORK_USER, NODES),
    ("ferry:node-local-path", LOCAL_PATH_USER, NODES),
];

/// Applies the objects; `server` is the API server's address for other machines.
pub async fn apply_bootstrap_objects(admin: &Client, server: &str, ca: &str) -> kube::Result<()> {
    for (name, role, group) in BINDINGS {
        let binding = json!({ "roleRef": role_ref("ClusterRole", role), "subjects": [subject("Group", group)] });
        apply_object::<ClusterRoleBinding>(Api::all(admin.clone()), name, binding).await?;
    }
    let settings = json!({ "roleRef": role_ref("Role", NETWORK_USER), "subjects": [subject("Group", NODES)] });
    apply_object::<RoleBinding>(Api::namespaced(admin.clone(), "kube-system"), "ferry:node-network", settings).await?;
    let (name, key) = CLUSTER_INFO;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{ "name": "", "cluster": {
            "server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca),
        } }],
    });
    let public = admin.clone();
    apply_object::<ConfigMap>(
        Api::namespaced(public, "kube-public"),
        name,
        json!({ "data": { key: kubeconfig.to_string() } }),
    )
    .await?;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"] }]);
    let reader = "ferry:cluster-info";
    apply_object::<Role>(Api::namespaced(admin.clone(), "kube-public"), reader, json!({ "rules": rules })).await?;
    let anonymous = json!({ "roleRef": role_ref("Role", reader), "subjects": [subject("User", "system:anonymous")] });
    apply_object::<RoleBinding>(Api::namespaced(admin.clone(), "kube-public"), reader, anonymous).await
}
