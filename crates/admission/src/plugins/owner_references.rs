//! OwnerReferencesPermissionEnforcement: changing owner references requires permission to delete the object, and
//! setting `blockOwnerDeletion` requires permission to update the owner's finalizers.

use std::sync::Arc;

use api::{Value, meta, schema::schema, status::Status};
use apiserver_core::attributes::AttributesTarget;
use async_trait::async_trait;
use authz::Authorizers;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "OwnerReferencesPermissionEnforcement",
    on: false,
    about: &[ResourceRule::everything(&[Operation::Create, Operation::Update])],
    make: |parts| Ok(Box::new(OwnerReferences(parts.authorizers.clone()))),
};

struct OwnerReferences(Arc<Authorizers>);

#[async_trait]
impl Plugin for OwnerReferences {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let old = attributes.old.unwrap_or(&Value::Null);
        let bindings = attributes.is_of("", "pods") && attributes.subresource() == "status";
        if bindings || owners(object) == owners(old) {
            return Ok(());
        }
        let resource = attributes.resource();
        if attributes.operation != Operation::Create {
            let own = apiserver_core::attributes::ResourceAttributes {
                group: resource.group,
                version: resource.version,
                resource: resource.name,
                subresource: attributes.subresource(),
                namespace: attributes.namespace(),
                name: &attributes.target.name,
                ..Default::default()
            };
            if !self.allows(attributes, "delete", own).await {
                let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
                return Err(attributes.forbidden(object, why));
            }
        }
        let blocking: Vec<&Value> = owners(object).iter().filter(|owner| is_new_block(owner, old)).collect();
        let anything = apiserver_core::attributes::ResourceAttributes {
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            ..Default::default()
        };
        if blocking.is_empty() || self.allows(attributes, "update", anything).await {
            return Ok(());
        }
        for owner in blocking {
            self.may_block(attributes, object, owner).await?;
        }
        Ok(())
    }
}

impl OwnerReferences {
    async fn may_block(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        owner: &Value,
    ) -> Result<(), Status> {
        let (api_version, kind) = (meta::string_at(owner, &["apiVersion"]), meta::string_at(owner, &["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let built_in = schema().resource_of_kind(group, version, kind).map(api::schema::ResourceRef::BuiltIn);
        let Some(row) = built_in.or_else(|| attributes.registry.custom_resources().find_kind(group, version, kind))
        else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: \
                 no matches for kind {kind:?} in version {api_version:?}"
            );
            return Err(attributes.forbidden(object, why));
        };
        let resource = apiserver_core::attributes::ResourceAttributes {
            group: row.group,
            version: row.version,
            resource: row.name,
            subresource: "finalizers",
            namespace: if row.is_namespaced() { attributes.namespace() } else { "" },
            name: meta::string_at(owner, &["name"]),
            ..Default::default()
        };
        if self.allows(attributes, "update", resource).await {
            return Ok(());
        }
        let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
        Err(attributes.forbidden(object, why))
    }

    async fn allows(
        &self,
        attributes: &AdmissionAttributes<'_>,
        verb: &str,
        resource: apiserver_core::attributes::ResourceAttributes<'_>,
    ) -> bool {
        let asked = apiserver_core::attributes::Attributes {
            user: attributes.user(),
            verb,
            target: AttributesTarget::Resource(resource),
        };
        self.0.is_allowed(&asked).await
    }
}

fn owners(object: &Value) -> &[Value] {
    meta::list_at(object, &["metadata", "ownerReferences"])
}

/// Whether an owner reference newly sets `blockOwnerDeletion`.
fn is_new_block(owner: &Value, old: &Value) -> bool {
    let known = owners(old).iter().find(|known| known["uid"] == owner["uid"]);
    owner["blockOwnerDeletion"] == true && known.is_none_or(|known| known["blockOwnerDeletion"] != true)
}
