//! The objects that every cluster has from its first second.

use api::{decode, defaults, schema::schema};
use serde_json::json;

use crate::{User, query::Query, registry::Registry, request::Target};

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing.
pub async fn create(registry: &Registry) -> Result<(), store::Error> {
    let resource = schema()
        .resource("", "v1", "namespaces")
        .ok_or_else(|| store::Error::Unusable("the schema lacks namespaces".into()))?;
    for name in NAMESPACES {
        if registry.read(resource, "", name).await.is_ok() {
            continue;
        }
        let given = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let mut object =
            decode::canonical(resource.ty, given).map_err(|error| store::Error::Unusable(error.to_string()))?.object;
        defaults::apply(resource.ty, &mut object);
        let target = Target {
            resource,
            verb: "create",
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            query: Query::default(),
            user: User::default(),
        };
        let created = registry.create_object(&target, object, false).await;
        created
            .map_err(|status| store::Error::Unusable(format!("cannot create namespace {name}: {}", status.message)))?;
    }
    Ok(())
}
