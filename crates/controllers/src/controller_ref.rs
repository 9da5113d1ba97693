//! Controller references: looking up an object's controller, adopting orphans, releasing objects that no longer match.

use std::{collections::BTreeMap, sync::Arc};

use client::{SharedInformer, informer::CachedObject};
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

/// Index of objects by the uid of their controller; see [`index_by_controller`].
const BY_CONTROLLER: &str = "controller";

/// Returns the reference to the object's managing controller.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|reference| reference.controller == Some(true))
}

/// Builds a reference that makes `owner` the managing controller and blocks its foreground deletion.
pub(crate) fn new_controller_ref<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Adds the index that [`claim_candidates`] and [`controlled_objects`] read.
pub(crate) fn index_by_controller<K: CachedObject>(informer: &SharedInformer<K>) {
    informer.add_index(BY_CONTROLLER, |object| {
        let meta = object.meta();
        match controller_of(meta) {
            Some(controller) => vec![controller.uid.clone()],
            None => vec![orphan_index_value(meta.namespace.as_deref().unwrap_or(""))],
        }
    });
}

/// Returns the objects that `owner` controls and the orphans of its namespace.
pub(crate) fn claim_candidates<K: CachedObject>(informer: &SharedInformer<K>, owner: &ObjectMeta) -> Vec<Arc<K>> {
    let mut found = controlled_objects(informer, owner.uid.as_deref().unwrap_or(""));
    found.extend(informer.by_index(BY_CONTROLLER, &orphan_index_value(owner.namespace.as_deref().unwrap_or(""))));
    found
}

/// Returns the objects controlled by the object with this uid.
pub(crate) fn controlled_objects<K: CachedObject>(informer: &SharedInformer<K>, uid: &str) -> Vec<Arc<K>> {
    informer.by_index(BY_CONTROLLER, uid)
}

/// Index value of the orphans in a namespace; distinct from every uid.
fn orphan_index_value(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// Parses a selector; `None` if it is invalid or empty and so selects nothing.
pub(crate) fn non_empty_selector(of: &LabelSelector) -> Option<Selector> {
    Selector::try_from(of.clone()).ok().filter(|selector| !selector.selects_all())
}

/// Whether the selector matches the object's labels.
pub(crate) fn selector_matches(selector: &Selector, meta: &ObjectMeta) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.matches(meta.labels.as_ref().unwrap_or(&NONE))
}

/// Action that a controller takes on a candidate object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimAction {
    Keep,
    Adopt,
    Release,
    Ignore,
}

fn claim_action(owner: &ObjectMeta, selector: &Selector, object: &ObjectMeta) -> ClaimAction {
    let (matches, deleting) = (selector_matches(selector, object), owner.deletion_timestamp.is_some());
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => ClaimAction::Ignore,
        Some(_) if matches => ClaimAction::Keep,
        Some(_) if deleting => ClaimAction::Ignore,
        Some(_) => ClaimAction::Release,
        None if matches && !deleting && object.deletion_timestamp.is_none() => ClaimAction::Adopt,
        None => ClaimAction::Ignore,
    }
}

/// Returns the `objects` that belong to `owner`, adopting matching orphans and releasing those that no longer match.
pub(crate) async fn claim_objects<O, K>(
    client: &Client,
    owner: &O,
    selector: &Selector,
    objects: Vec<Arc<K>>,
) -> Result<Vec<Arc<K>>, kube::Error>
where
    O: CachedObject + Resource<Scope = NamespaceResourceScope>,
    K: CachedObject + Resource<Scope = NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(client.clone(), owner.meta().namespace.as_deref().unwrap_or(""));
    let mut owned = Vec::new();
    let mut may_adopt = None;
    for object in objects {
        match claim_action(owner.meta(), selector, object.meta()) {
            ClaimAction::Ignore => {}
            ClaimAction::Keep => owned.push(object),
            ClaimAction::Release => release_object(&api, owner.meta(), object.meta()).await?,
            ClaimAction::Adopt => {
                if may_adopt.is_none() {
                    may_adopt = Some(can_adopt(client, owner).await?);
                }
                if may_adopt == Some(true)
                    && let Some(object) = adopt_object(&api, new_controller_ref(owner), object.meta()).await?
                {
                    owned.push(Arc::new(object));
                }
            }
        }
    }
    Ok(owned)
}

/// Reads the owner from the server, because the cache may not show its deletion yet.
async fn can_adopt<O>(client: &Client, owner: &O) -> Result<bool, kube::Error>
where
    O: CachedObject + Resource<Scope = NamespaceResourceScope>,
{
    let meta = owner.meta();
    let api: Api<O> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or(""));
    let live = api.get_opt(meta.name.as_deref().unwrap_or("")).await?;
    Ok(live.is_some_and(|live| live.meta().uid == meta.uid && live.meta().deletion_timestamp.is_none()))
}

async fn adopt_object<K: CachedObject>(
    api: &Api<K>,
    owner: OwnerReference,
    object: &ObjectMeta,
) -> Result<Option<K>, kube::Error> {
    patch_object(api, object, json!({"metadata": {"uid": object.uid, "ownerReferences": [owner]}})).await
}

async fn release_object<K: CachedObject>(
    api: &Api<K>,
    owner: &ObjectMeta,
    object: &ObjectMeta,
) -> Result<(), kube::Error> {
    let gone = json!([{"$patch": "delete", "uid": owner.uid}]);
    patch_object(api, object, json!({"metadata": {"uid": object.uid, "ownerReferences": gone}})).await.map(drop)
}

/// Patches an object, guarded by its uid; `None` if it is gone or was recreated.
async fn patch_object<K: CachedObject>(
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

    fn check(owner_uid: Option<&str>, app: &str, owner_deleting: bool, expected: ClaimAction) {
        let mut owner = ReplicaSet::default();
        (owner.metadata.uid, owner.metadata.name) = (Some("mine".into()), Some("rs".into()));
        owner.metadata.deletion_timestamp = owner_deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        let selector: Selector = [("app", "web")].into_iter().collect();
        let mut object = ObjectMeta { labels: Some([("app".into(), app.into())].into()), ..Default::default() };
        object.owner_references =
            owner_uid.map(|uid| vec![OwnerReference { uid: uid.into(), ..new_controller_ref(&owner) }]);
        assert_eq!(claim_action(&owner.metadata, &selector, &object), expected, "{owner_uid:?} {app} {owner_deleting}");
    }

    #[test]
    fn claim_depends_on_controller_labels_and_deletion() {
        check(Some("mine"), "web", false, ClaimAction::Keep);
        check(Some("mine"), "web", true, ClaimAction::Keep);
        check(Some("mine"), "db", false, ClaimAction::Release);
        check(Some("mine"), "db", true, ClaimAction::Ignore);
        check(Some("other"), "web", false, ClaimAction::Ignore);
        check(None, "web", false, ClaimAction::Adopt);
        check(None, "web", true, ClaimAction::Ignore);
        check(None, "db", false, ClaimAction::Ignore);
    }
}
