//! The local-path provisioner in the node process, and the objects that it needs.

use addons::local_path::{LocalPathProvisioner, create_storage_class};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{Api, Client};
use serde_json::json;

use crate::{
    apply_object::{apply_object, role_ref, subject},
    options::UpOptions,
    shutdown::ComponentSet,
};

/// The user of the provisioner.
pub const LOCAL_PATH_USER: &str = "system:ferry:local-path";

/// Applies the RBAC rules of the provisioner and creates its StorageClass.
pub async fn apply_local_path_objects(admin: &Client) -> kube::Result<()> {
    let read = ["get", "list", "watch"];
    let rules = json!([
        { "apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list", "watch", "create", "patch", "delete"] },
        { "apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": read },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
        { "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read },
    ]);
    apply_object::<ClusterRole>(Api::all(admin.clone()), LOCAL_PATH_USER, json!({ "rules": rules })).await?;
    let subjects = json!([subject("User", LOCAL_PATH_USER)]);
    let binding = json!({ "roleRef": role_ref("ClusterRole", LOCAL_PATH_USER), "subjects": subjects });
    apply_object::<ClusterRoleBinding>(Api::all(admin.clone()), LOCAL_PATH_USER, binding).await?;
    create_storage_class(admin).await
}

/// Provisions volumes on this node.
pub fn start_local_path_provisioner(options: &UpOptions, client: Client, components: &mut ComponentSet) {
    let (node, root) = (options.node_name.clone(), options.instance.local_volumes());
    components.start("local-path provisioner", |shutdown| async move {
        LocalPathProvisioner::new(client, &node, root, &shutdown).run(shutdown).await;
        Ok(())
    });
}
