//! Controller references: looking up an object's controller, adopting orphans, releasing objects that no longer match.

use std::{collections::BTreeMap, sync::Arc};

use client::{ApiErrorExt, ResourceEvent, SharedInformer, informer::CachedObject};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        core::v1::ReplicationController,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt, Status},
};
use serde_json::json;

use crate::object_key::ObjectKey;

/// Index of objects by the uid of their controller; see [`index_by_controller`].
const BY_CONTROLLER: &str = "controller";
/// Index of controllers by namespace; see [`index_by_namespace`].
const BY_NAMESPACE: &str = "namespace";

/// A controller object that selects the objects it controls by their labels.
pub(crate) trait SelectingController: CachedObject {
    /// Returns the selector; `None` if it is invalid or empty and so selects nothing.
    fn selector(&self) -> Option<Selector>;
}

impl SelectingController for ReplicaSet {
    fn selector(&self) -> Option<Selector> {
        non_empty_selector(&self.spec.as_ref()?.selector)
    }
}

impl SelectingController for Deployment {
    fn selector(&self) -> Option<Selector> {
        non_empty_selector(&self.spec.as_ref()?.selector)
    }
}

impl SelectingController for StatefulSet {
    fn selector(&self) -> Option<Selector> {
        non_empty_selector(&self.spec.as_ref()?.selector)
    }
}

impl SelectingController for DaemonSet {
    fn selector(&self) -> Option<Selector> {
        non_empty_selector(&self.spec.as_ref()?.selector)
    }
}

impl SelectingController for ReplicationController {
    fn selector(&self) -> Option<Selector> {
        let match_labels = self.spec.as_ref()?.selector.clone();
        non_empty_selector(&LabelSelector { match_labels, match_expressions: None })
    }
}

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

/// Adds the index that [`enqueue_controllers`] and [`objects_in_namespace`] read.
pub(crate) fn index_by_namespace<K: CachedObject>(informer: &SharedInformer<K>) {
    informer.add_index(BY_NAMESPACE, |object| object.meta().namespace.iter().cloned().collect());
}

/// Returns the objects of a namespace.
pub(crate) fn objects_in_namespace<K: CachedObject>(informer: &SharedInformer<K>, namespace: &str) -> Vec<Arc<K>> {
    informer.by_index(BY_NAMESPACE, namespace)
}

/// Returns the cached controller of an object, if it is of kind `K` and has the uid of the reference.
pub(crate) fn resolve_controller<K: CachedObject>(informer: &SharedInformer<K>, object: &ObjectMeta) -> Option<Arc<K>> {
    let reference = controller_of(object).filter(|reference| reference.kind == K::kind(&()))?;
    let controller = informer.get(object.namespace.as_deref().unwrap_or(""), &reference.name)?;
    (controller.meta().uid.as_ref() == Some(&reference.uid)).then_some(controller)
}

/// Enqueues the controller of a changed object and its previous one. The controllers that may adopt an orphan are
/// enqueued when it is new or its labels or controller changed.
pub(crate) fn enqueue_controllers<K: SelectingController, O: CachedObject>(
    controllers: &SharedInformer<K>,
    event: &ResourceEvent<O>,
    enqueue: impl Fn(ObjectKey),
) {
    let meta = event.object().meta();
    let mut adoptable = !matches!(event, ResourceEvent::Deleted(_)) && meta.deletion_timestamp.is_none();
    if let ResourceEvent::Updated { old, .. } = event {
        let (before, now) = (controller_of(old.meta()), controller_of(meta));
        if before != now
            && let Some(controller) = resolve_controller(controllers, old.meta())
        {
            enqueue(ObjectKey::from_object(controller.as_ref()));
        }
        adoptable &= before != now || old.meta().labels != meta.labels;
    }
    if let Some(controller) = resolve_controller(controllers, meta) {
        enqueue(ObjectKey::from_object(controller.as_ref()));
    } else if adoptable && controller_of(meta).is_none() {
        for controller in controllers.by_index(BY_NAMESPACE, meta.namespace.as_deref().unwrap_or("")) {
            if controller.selector().is_some_and(|selector| selector_matches(&selector, meta)) {
                enqueue(ObjectKey::from_object(controller.as_ref()));
            }
        }
    }
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

fn claim_action(owner: &ObjectMeta, matches: bool, object: &ObjectMeta) -> ClaimAction {
    let deleting = owner.deletion_timestamp.is_some();
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
    let matches = |object: &ObjectMeta| selector_matches(selector, object);
    ObjectClaim { client, owner, finalizers: &[] }.claim_if(matches, objects).await
}

/// The claim of a controller on objects that match its condition.
pub(crate) struct ObjectClaim<'a, O> {
    pub(crate) client: &'a Client,
    pub(crate) owner: &'a O,
    /// Added to adopted objects and removed from released ones.
    pub(crate) finalizers: &'a [&'a str],
}

impl<O: CachedObject + Resource<Scope = NamespaceResourceScope>> ObjectClaim<'_, O> {
    /// Returns the `objects` that belong to the owner, adopting matching orphans and releasing those that no longer
    /// match. Every object is tried before the first failure is returned.
    pub(crate) async fn claim_if<K>(
        &self,
        matches: impl Fn(&ObjectMeta) -> bool + Send,
        objects: Vec<Arc<K>>,
    ) -> Result<Vec<Arc<K>>, kube::Error>
    where
        K: CachedObject + Resource<Scope = NamespaceResourceScope>,
    {
        let owner = self.owner.meta();
        let api: Api<K> = Api::namespaced(self.client.clone(), owner.namespace.as_deref().unwrap_or(""));
        let (mut owned, mut failure, mut may_adopt) = (Vec::new(), None, None);
        for object in objects {
            let claimed = match claim_action(owner, matches(object.meta()), object.meta()) {
                ClaimAction::Ignore => Ok(None),
                ClaimAction::Keep => Ok(Some(object)),
                ClaimAction::Release => self.release_object(&api, object.meta()).await.map(|()| None),
                ClaimAction::Adopt => {
                    let checked = match may_adopt {
                        None => check_can_adopt(self.client, self.owner).await,
                        Some(_) => Ok(()),
                    };
                    may_adopt = may_adopt.or(Some(checked.is_ok()));
                    match checked {
                        Ok(()) if may_adopt == Some(true) => self.adopt_object(&api, object.meta()).await,
                        checked => checked.map(|()| None),
                    }
                }
            };
            match claimed {
                Ok(object) => owned.extend(object),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(owned), Err)
    }

    /// Makes the owner the controller of an orphan; `None` if the object is gone.
    async fn adopt_object<K: CachedObject>(
        &self,
        api: &Api<K>,
        object: &ObjectMeta,
    ) -> Result<Option<Arc<K>>, kube::Error> {
        let mut metadata = json!({"uid": object.uid, "ownerReferences": [new_controller_ref(self.owner)]});
        if !self.finalizers.is_empty() {
            metadata["finalizers"] = json!(self.finalizers);
        }
        match patch_object(api, object, json!({"metadata": metadata})).await {
            Ok(adopted) => Ok(Some(Arc::new(adopted))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the reference to the owner. The object may be gone, recreated or released already.
    async fn release_object<K: CachedObject>(&self, api: &Api<K>, object: &ObjectMeta) -> Result<(), kube::Error> {
        let gone = json!([{"$patch": "delete", "uid": self.owner.meta().uid}]);
        let mut metadata = json!({"uid": object.uid, "ownerReferences": gone});
        if !self.finalizers.is_empty() {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!(self.finalizers);
        }
        match patch_object(api, object, json!({"metadata": metadata})).await {
            Err(error) if !error.is_not_found() && !error.is_invalid() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads the owner from the server, because the cache may not show its deletion yet. Fails with a conflict if it was
/// deleted or replaced.
pub(crate) async fn check_can_adopt<O>(client: &Client, owner: &O) -> Result<(), kube::Error>
where
    O: CachedObject + Resource<Scope = NamespaceResourceScope>,
{
    let (meta, kind) = (owner.meta(), O::kind(&()));
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""));
    let live = Api::<O>::namespaced(client.clone(), namespace).get_opt(name).await?;
    if live.is_some_and(|live| live.meta().uid == meta.uid && live.meta().deletion_timestamp.is_none()) {
        return Ok(());
    }
    let message = format!("{kind} {namespace}/{name} was deleted or replaced and cannot adopt");
    Err(kube::Error::Api(Box::new(Status::failure(&message, "Conflict").with_code(409))))
}

/// Patches an object; the patch contains its uid, so that a recreated object is refused.
async fn patch_object<K: CachedObject>(
    api: &Api<K>,
    object: &ObjectMeta,
    patch: serde_json::Value,
) -> Result<K, kube::Error> {
    let name = object.name.as_deref().unwrap_or("");
    api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn check(owner_uid: Option<&str>, app: &str, owner_deleting: bool, expected: ClaimAction) {
        let mut owner = ReplicaSet::default();
        (owner.metadata.uid, owner.metadata.name) = (Some("mine".into()), Some("rs".into()));
        owner.metadata.deletion_timestamp = owner_deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        let selector: Selector = [("app", "web")].into_iter().collect();
        let mut object = ObjectMeta { labels: Some([("app".into(), app.into())].into()), ..Default::default() };
        object.owner_references =
            owner_uid.map(|uid| vec![OwnerReference { uid: uid.into(), ..new_controller_ref(&owner) }]);
        let matches = selector_matches(&selector, &object);
        assert_eq!(claim_action(&owner.metadata, matches, &object), expected, "{owner_uid:?} {app} {owner_deleting}");
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
