//! OwnerReferencesPermissionEnforcement: changing owner references requires permission to delete the object, and
//! setting `blockOwnerDeletion` requires permission to update the owner's finalizers.

use std::sync::Arc;

use api::{Value, meta, schema::schema, status::Status};
use apiserver_core::attributes::ResourceAttributes;
use async_trait::async_trait;
use authz::Authorizers;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "OwnerReferencesPermissionEnforcement",
    enabled_by_default: false,
    rules: &[ResourceRule::for_all_resources(Operation::WRITES)],
    construct: |init| Ok(Box::new(OwnerReferencesPermissionEnforcement(init.authorizers.clone()))),
};

struct OwnerReferencesPermissionEnforcement(Arc<Authorizers>);

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let old = attributes.old.unwrap_or(&Value::Null);
        let bindings = attributes.targets_resource("", "pods") && attributes.subresource() == "status";
        if bindings || owner_references(object) == owner_references(old) {
            return Ok(());
        }
        let resource = attributes.resource();
        if attributes.operation != Operation::Create {
            let own = ResourceAttributes {
                group: resource.group,
                version: resource.version,
                resource: resource.name,
                subresource: attributes.subresource(),
                namespace: attributes.namespace(),
                name: &attributes.target.name,
                ..Default::default()
            };
            if !attributes.authorize_user(&self.0, "delete", own).await.is_allowed() {
                let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
                return Err(attributes.new_forbidden(object, why));
            }
        }
        let blocking: Vec<&Value> =
            owner_references(object).iter().filter(|owner| is_newly_blocking(owner, old)).collect();
        let anything = ResourceAttributes {
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            ..Default::default()
        };
        if blocking.is_empty() || attributes.authorize_user(&self.0, "update", anything).await.is_allowed() {
            return Ok(());
        }
        for owner in blocking {
            self.authorize_blocking(attributes, object, owner).await?;
        }
        Ok(())
    }
}

impl OwnerReferencesPermissionEnforcement {
    async fn authorize_blocking(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        owner: &Value,
    ) -> Result<(), Status> {
        let (api_version, kind) = (meta::string_at(owner, &["apiVersion"]), meta::string_at(owner, &["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let built_in = schema().resource_of_kind(group, version, kind).map(api::schema::ResourceRef::BuiltIn);
        let Some(descriptor) =
            built_in.or_else(|| attributes.registry.custom_resources().find_kind(group, version, kind))
        else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: \
                 no matches for kind {kind:?} in version {api_version:?}"
            );
            return Err(attributes.new_forbidden(object, why));
        };
        let resource = ResourceAttributes {
            group: descriptor.group,
            version: descriptor.version,
            resource: descriptor.name,
            subresource: "finalizers",
            namespace: if descriptor.is_namespaced() { attributes.namespace() } else { "" },
            name: meta::string_at(owner, &["name"]),
            ..Default::default()
        };
        if attributes.authorize_user(&self.0, "update", resource).await.is_allowed() {
            return Ok(());
        }
        let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
        Err(attributes.new_forbidden(object, why))
    }
}

fn owner_references(object: &Value) -> &[Value] {
    meta::list_at(object, &["metadata", "ownerReferences"])
}

/// Whether an owner reference newly sets `blockOwnerDeletion`.
fn is_newly_blocking(owner: &Value, old: &Value) -> bool {
    let known = owner_references(old).iter().find(|known| known["uid"] == owner["uid"]);
    owner["blockOwnerDeletion"] == true && known.is_none_or(|known| known["blockOwnerDeletion"] != true)
}
