//! ControllerRevisions: the history of a controller's pod template.
//!
//! A revision's data is a strategic merge patch that restores the template. Its hash is part of the revision's name.

use std::{cmp::Ordering, sync::Arc};

use api::json::escape_html;
use client::{ApiErrorExt, SharedInformer, informer::CachedObject};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::Selector,
};
use serde_json::{Value, json};

use crate::{
    conflict_retry::{ConflictRetry, DEFAULT_BACKOFF},
    controller_ref::{claim_candidates, new_controller_ref, selector_matches},
    hash::hash_revision_data,
};

/// Label with the hash of a revision's data.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Longest part of the owner's name in a revision's name.
const MAX_PREFIX_LENGTH: usize = 223;

/// Returns the patch that restores a template.
pub(crate) fn template_patch(template: &PodTemplateSpec) -> Result<Value, serde_json::Error> {
    let mut template = serde_json::to_value(template)?;
    if let Value::Object(fields) = &mut template {
        fields.insert("$patch".into(), "replace".into());
    }
    Ok(json!({"spec": {"template": template}}))
}

/// Returns the template that a revision restores; `None` if its data is no [`template_patch`].
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision_data(revision)?.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// Returns a revision's data.
pub(crate) fn revision_data(revision: &ControllerRevision) -> Option<&Value> {
    revision.data.as_ref().map(|data| &data.0)
}

/// Hashes data in the encoding of Go: sorted keys, and `<`, `>`, `&` escaped.
fn hash_data(data: &Value, collisions: i32) -> String {
    hash_revision_data(&escape_html(data.to_string()), Some(collisions))
}

fn revision_name(owner: &str, hash: &str) -> String {
    let mut end = owner.len().min(MAX_PREFIX_LENGTH);
    while !owner.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &owner[..end])
}

/// Builds a revision of `owner` with the labels of its template.
pub(crate) fn new_controller_revision<K: Resource<DynamicType = ()>>(
    owner: &K,
    template: &PodTemplateSpec,
    revision: i64,
    collisions: i32,
) -> Result<ControllerRevision, serde_json::Error> {
    let data = template_patch(template)?;
    let hash = hash_data(&data, collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let metadata = ObjectMeta {
        name: Some(revision_name(owner.meta().name.as_deref().unwrap_or(""), &hash)),
        labels: Some(labels),
        annotations: owner.meta().annotations.clone(),
        owner_references: Some(vec![new_controller_ref(owner)]),
        ..Default::default()
    };
    Ok(ControllerRevision { metadata, data: Some(RawExtension(data)), revision })
}

/// Orders by revision number, creation time and name.
pub(crate) fn compare_revisions(a: &ControllerRevision, b: &ControllerRevision) -> Ordering {
    let created = |revision: &ControllerRevision| revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
    a.revision
        .cmp(&b.revision)
        .then_with(|| created(a).cmp(&created(b)))
        .then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Lists and writes the ControllerRevisions of a controller.
pub(crate) struct RevisionHistory {
    pub(crate) client: Client,
    /// The informer, indexed by controller.
    pub(crate) revisions: SharedInformer<ControllerRevision>,
}

impl RevisionHistory {
    /// Returns the revisions that `owner` controls and the orphans, as far as they match `selector`, sorted.
    pub(crate) fn list(&self, owner: &ObjectMeta, selector: &Selector) -> Vec<Arc<ControllerRevision>> {
        let mut found = claim_candidates(&self.revisions, owner);
        found.retain(|revision| selector_matches(selector, &revision.metadata));
        found.sort_by(|a, b| compare_revisions(a, b));
        found
    }

    /// Creates a revision. If its name is taken by other data, `collisions` is raised until the name is free; a revision
    /// with equal data is returned as it is.
    pub(crate) async fn create<K>(
        &self,
        owner: &K,
        revision: &ControllerRevision,
        collisions: &mut i32,
    ) -> Result<ControllerRevision, kube::Error>
    where
        K: CachedObject + Resource<Scope = NamespaceResourceScope>,
    {
        let api = self.api(owner.meta());
        let mut revision = revision.clone();
        loop {
            let hash = revision_data(&revision).map(|data| hash_data(data, *collisions)).unwrap_or_default();
            let name = revision_name(owner.meta().name.as_deref().unwrap_or(""), &hash);
            revision.metadata.name = Some(name.clone());
            match api.create(&PostParams::default(), &revision).await {
                Err(error) if error.is_already_exists() => {
                    let existing = api.get(&name).await?;
                    if revision_data(&existing) == revision_data(&revision) {
                        return Ok(existing);
                    }
                    *collisions += 1;
                }
                result => return result,
            }
        }
    }

    /// Sets the number of a revision.
    pub(crate) async fn set_number(
        &self,
        revision: &ControllerRevision,
        number: i64,
    ) -> Result<ControllerRevision, kube::Error> {
        let (namespace, name) =
            (revision.metadata.namespace.as_deref().unwrap_or(""), revision.metadata.name.as_deref().unwrap_or(""));
        let api = self.api(&revision.metadata);
        let (mut latest, mut retry) = (revision.clone(), ConflictRetry::new(DEFAULT_BACKOFF));
        while latest.revision != number {
            latest.revision = number;
            match api.replace(name, &PostParams::default(), &latest).await {
                Ok(updated) => return Ok(updated),
                Err(error) if !retry.wait_for_retry(error.is_conflict()).await => return Err(error),
                Err(_) => latest = self.revisions.get(namespace, name).map_or(latest, Arc::unwrap_or_clone),
            }
        }
        Ok(latest)
    }

    /// Makes `owner` the controller of an orphaned revision.
    pub(crate) async fn adopt<K>(&self, owner: &K, revision: &ControllerRevision) -> Result<(), kube::Error>
    where
        K: CachedObject + Resource<Scope = NamespaceResourceScope>,
    {
        let meta = &revision.metadata;
        let patch = json!({"metadata": {"uid": meta.uid, "ownerReferences": [new_controller_ref(owner)]}});
        let name = meta.name.as_deref().unwrap_or("");
        self.api(meta).patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    }

    /// Deletes a revision.
    pub(crate) async fn delete(&self, revision: &ControllerRevision) -> Result<(), kube::Error> {
        let name = revision.metadata.name.as_deref().unwrap_or("");
        self.api(&revision.metadata).delete(name, &DeleteParams::default()).await.map(drop)
    }

    /// Returns the API of revisions in the namespace of `meta`.
    pub(crate) fn api(&self, meta: &ObjectMeta) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or(""))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        let spec = json!({"containers": [{"name": "c", "image": image}]});
        serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}}, "spec": spec})).unwrap()
    }

    fn set(name: &str) -> StatefulSet {
        let metadata = json!({"name": name, "uid": "u", "annotations": {"a": "b"}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn revision_is_named_after_its_data() {
        let revision = new_controller_revision(&set("web"), &template("nginx"), 3, 0).unwrap();
        let data = json!({"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"image": "nginx", "name": "c"}]}}}});
        assert_eq!(revision_data(&revision), Some(&data));
        let hash = &revision.metadata.labels.as_ref().unwrap()[HASH_LABEL];
        assert_eq!(revision.metadata.name, Some(format!("web-{hash}")));
        assert_eq!((revision.revision, revision.metadata.labels.as_ref().unwrap()["app"].as_str()), (3, "web"));
        assert_eq!(revision.metadata.annotations.as_ref().unwrap()["a"], "b");
        assert_eq!(template_of(&revision), Some(template("nginx")));
        let collided = new_controller_revision(&set("web"), &template("nginx"), 3, 1).unwrap();
        assert_ne!(collided.metadata.name, revision.metadata.name);
    }

    /// The hash is that of `fnv.New32` over the bytes that Go's encoder writes.
    #[test]
    fn hash_covers_gos_encoding_and_the_collision_count() {
        assert_eq!(
            hash_data(&json!({"b": "<&>", "a": 1}), 0),
            hash_revision_data(r#"{"a":1,"b":"\u003c\u0026\u003e"}0"#, None)
        );
        assert_eq!(hash_revision_data("foobar", None), "d7cd9cdf4");
    }

    #[test]
    fn long_names_are_truncated() {
        assert_eq!(revision_name(&"a".repeat(230), "h").len(), 225);
    }

    #[test]
    fn revisions_are_ordered_by_number_then_age_then_name() {
        let revision = |number: i64, created: &str, name: &str| -> ControllerRevision {
            serde_json::from_value(
                json!({"metadata": {"name": name, "creationTimestamp": created}, "revision": number}),
            )
            .unwrap()
        };
        let mut all = [
            revision(2, "2030-01-01T00:00:00Z", "a"),
            revision(1, "2030-01-01T00:00:02Z", "b"),
            revision(1, "2030-01-01T00:00:01Z", "d"),
            revision(1, "2030-01-01T00:00:01Z", "c"),
        ];
        all.sort_by(compare_revisions);
        assert_eq!(all.map(|revision| revision.metadata.name.unwrap()), ["c", "d", "b", "a"]);
    }
}
