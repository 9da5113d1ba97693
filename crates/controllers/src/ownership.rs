//! Which controller an object belongs to, and how controllers take up orphans and let go of what they no longer select.

use std::{collections::BTreeMap, sync::Arc};

use client::{Informer, informer::Object};
use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::json;

/// The index of objects by the uid of their controller; see [`index_by_controller`].
const BY_CONTROLLER: &str = "controller";

/// The reference to the object's managing controller.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|reference| reference.controller == Some(true))
}

/// A reference that makes `owner` the managing controller, whose foreground deletion waits for the object.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Lets [`candidates`] find objects quickly.
pub(crate) fn index_by_controller<K: Object>(informer: &Informer<K>) {
    informer.add_index(BY_CONTROLLER, |object| {
        let meta = object.meta();
        match controller_of(meta) {
            Some(controller) => vec![controller.uid.clone()],
            None => vec![orphans_in(meta.namespace.as_deref().unwrap_or(""))],
        }
    });
}

/// The objects that `owner` controls, and those of its namespace that nothing controls.
pub(crate) fn candidates<K: Object>(informer: &Informer<K>, owner: &ObjectMeta) -> Vec<Arc<K>> {
    let mut found = controlled(informer, owner.uid.as_deref().unwrap_or(""));
    found.extend(informer.by_index(BY_CONTROLLER, &orphans_in(owner.namespace.as_deref().unwrap_or(""))));
    found
}

/// The objects that the controller with this uid controls.
pub(crate) fn controlled<K: Object>(informer: &Informer<K>, uid: &str) -> Vec<Arc<K>> {
    informer.by_index(BY_CONTROLLER, uid)
}

/// No uid looks like this, so orphans can live in the same index.
fn orphans_in(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// A selector that can be asked; one that is empty or not valid selects nothing.
pub(crate) fn selector(of: &LabelSelector) -> Option<Selector> {
    Selector::try_from(of.clone()).ok().filter(|selector| !selector.selects_all())
}

/// Whether the selector takes an object with these labels.
pub(crate) fn selects(selector: &Selector, meta: &ObjectMeta) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.matches(meta.labels.as_ref().unwrap_or(&NONE))
}

/// What a controller does about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Own,
    Adopt,
    Release,
    Leave,
}

fn claim(owner: &ObjectMeta, selector: &Selector, object: &ObjectMeta) -> Claim {
    let (matches, deleting) = (selects(selector, object), owner.deletion_timestamp.is_some());
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Leave,
        Some(_) if matches => Claim::Own,
        Some(_) if deleting => Claim::Leave,
        Some(_) => Claim::Release,
        None if matches && !deleting && object.deletion_timestamp.is_none() => Claim::Adopt,
        None => Claim::Leave,
    }
}

/// Takes from `objects` those that belong to `owner`: its own, and orphans that it selects, which it adopts. Its own
/// that it no longer selects are released.
pub(crate) async fn claim_all<O, K>(
    client: &Client,
    owner: &O,
    selector: &Selector,
    objects: Vec<Arc<K>>,
) -> Result<Vec<Arc<K>>, kube::Error>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(client.clone(), owner.meta().namespace.as_deref().unwrap_or(""));
    let mut owned = Vec::new();
    let mut may_adopt = None;
    for object in objects {
        match claim(owner.meta(), selector, object.meta()) {
            Claim::Leave => {}
            Claim::Own => owned.push(object),
            Claim::Release => release(&api, owner.meta(), object.meta()).await?,
            Claim::Adopt => {
                if may_adopt.is_none() {
                    may_adopt = Some(still_wanted(client, owner).await?);
                }
                if may_adopt == Some(true)
                    && let Some(object) = adopt(&api, controller_reference(owner), object.meta()).await?
                {
                    owned.push(Arc::new(object));
                }
            }
        }
    }
    Ok(owned)
}

/// Asks the server itself, because a cache may not know yet that the owner is being deleted.
async fn still_wanted<O>(client: &Client, owner: &O) -> Result<bool, kube::Error>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
{
    let meta = owner.meta();
    let api: Api<O> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or(""));
    let live = api.get_opt(meta.name.as_deref().unwrap_or("")).await?;
    Ok(live.is_some_and(|live| live.meta().uid == meta.uid && live.meta().deletion_timestamp.is_none()))
}

async fn adopt<K: Object>(api: &Api<K>, owner: OwnerReference, object: &ObjectMeta) -> Result<Option<K>, kube::Error> {
    patch(api, object, json!({"metadata": {"uid": object.uid, "ownerReferences": [owner]}})).await
}

async fn release<K: Object>(api: &Api<K>, owner: &ObjectMeta, object: &ObjectMeta) -> Result<(), kube::Error> {
    let gone = json!([{"$patch": "delete", "uid": owner.uid}]);
    patch(api, object, json!({"metadata": {"uid": object.uid, "ownerReferences": gone}})).await.map(drop)
}

/// The uid in the patch keeps it from an object that took the name meanwhile; an object that is gone needs no patch.
async fn patch<K: Object>(
    api: &Api<K>,
    object: &ObjectMeta,
    patch: serde_json::Value,
) -> Result<Option<K>, kube::Error> {
    use client::ApiErrorExt;
    let name = object.name.as_deref().unwrap_or("");
    match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() || error.is_invalid() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::apps::v1::ReplicaSet, apimachinery::pkg::apis::meta::v1::Time};

    use super::*;

    fn check(owner_uid: Option<&str>, app: &str, owner_deleting: bool, expected: Claim) {
        let mut owner = ReplicaSet::default();
        (owner.metadata.uid, owner.metadata.name) = (Some("mine".into()), Some("rs".into()));
        owner.metadata.deletion_timestamp = owner_deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        let selector: Selector = [("app", "web")].into_iter().collect();
        let mut object = ObjectMeta { labels: Some([("app".into(), app.into())].into()), ..Default::default() };
        object.owner_references =
            owner_uid.map(|uid| vec![OwnerReference { uid: uid.into(), ..controller_reference(&owner) }]);
        assert_eq!(claim(&owner.metadata, &selector, &object), expected, "{owner_uid:?} {app} {owner_deleting}");
    }

    #[test]
    fn claims() {
        check(Some("mine"), "web", false, Claim::Own);
        check(Some("mine"), "web", true, Claim::Own);
        check(Some("mine"), "db", false, Claim::Release);
        check(Some("mine"), "db", true, Claim::Leave);
        check(Some("other"), "web", false, Claim::Leave);
        check(None, "web", false, Claim::Adopt);
        check(None, "web", true, Claim::Leave);
        check(None, "db", false, Claim::Leave);
    }
}
