//! Objects that Ferry itself keeps in its cluster, by server-side apply.

use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Applies an object under a name; `object` is what it has beside that.
pub async fn apply_object<K>(api: Api<K>, name: &str, mut object: Value) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object["metadata"]["name"] = name.into();
    api.patch(name, &PatchParams::apply("ferry").force(), &Patch::Apply(&object)).await.map(drop)
}

/// A reference to a role.
pub fn role_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

/// A subject of a binding.
pub fn subject(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}
