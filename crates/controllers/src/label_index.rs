//! Indexes by labels: the objects that an equality selector matches, and the selectors that match an object, without a look
//! at all others of the namespace.

use std::{collections::BTreeMap, sync::Arc};

use client::{SharedInformer, informer::CachedObject};

/// Labels, or an equality selector.
type LabelMap = BTreeMap<String, String>;

/// Index of objects by namespace and label.
const BY_LABEL: &str = "label";
/// Index of selecting objects by namespace and the first pair of the selector.
const BY_FIRST_PAIR: &str = "selector";

/// Adds the index that [`objects_with_labels`] reads.
pub(crate) fn index_by_label<K: CachedObject>(informer: &SharedInformer<K>) {
    informer.add_index(BY_LABEL, |object| {
        let (meta, labels) = (object.meta(), object.meta().labels.iter().flatten());
        labels.map(|pair| index_value(meta.namespace.as_deref(), pair)).collect()
    });
}

/// Returns the objects of a namespace that have all pairs of a selector; an empty selector selects none.
pub(crate) fn objects_with_labels<K: CachedObject>(
    informer: &SharedInformer<K>,
    namespace: &str,
    selector: &LabelMap,
) -> Vec<Arc<K>> {
    let values: Vec<String> = selector.iter().map(|pair| index_value(Some(namespace), pair)).collect();
    let mut found = informer.by_rarest_index(BY_LABEL, values.iter().map(String::as_str));
    found.retain(|object| has_labels(object.meta().labels.as_ref(), selector));
    found
}

/// Adds the index that [`objects_selecting`] reads; `selector` returns the selector of an object.
pub(crate) fn index_by_selector<K: CachedObject>(
    informer: &SharedInformer<K>,
    selector: impl Fn(&K) -> Option<&LabelMap> + Send + Sync + 'static,
) {
    informer.add_index(BY_FIRST_PAIR, move |object| {
        let first = selector(object).and_then(BTreeMap::first_key_value);
        first.map(|pair| index_value(object.meta().namespace.as_deref(), pair)).into_iter().collect()
    });
}

/// Returns the objects of a namespace whose selector is not empty and matches the labels.
pub(crate) fn objects_selecting<K: CachedObject>(
    informer: &SharedInformer<K>,
    namespace: &str,
    labels: Option<&LabelMap>,
    selector: impl Fn(&K) -> Option<&LabelMap>,
) -> Vec<Arc<K>> {
    let candidates = labels.into_iter().flatten().flat_map(|pair| {
        // Every selector has one first pair, so no object is found twice.
        informer.by_index(BY_FIRST_PAIR, &index_value(Some(namespace), pair))
    });
    let selects = |object: &Arc<K>| selector(object).is_some_and(|selector| has_labels(labels, selector));
    candidates.filter(selects).collect()
}

/// Whether the labels have all pairs of a selector.
pub(crate) fn has_labels(labels: Option<&LabelMap>, selector: &LabelMap) -> bool {
    selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn index_value(namespace: Option<&str>, (key, value): (&String, &String)) -> String {
    format!("{}/{key}={value}", namespace.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{ConfigMap, Service};
    use kube::{Api, ResourceExt, client::Body, runtime::watcher};
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// An informer of objects that a server lists once.
    async fn informer<K: CachedObject>(objects: Vec<Value>) -> SharedInformer<K> {
        let lines: String =
            objects.iter().map(|object| format!("{}\n", json!({"type": "ADDED", "object": object}))).collect();
        let end = json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
        let (version, kind) = (K::api_version(&()), K::kind(&()));
        let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": version, "kind": kind, "metadata": end}});
        let body = format!("{lines}{bookmark}\n");
        let serve = move |_: Request<Body>| {
            let body = body.clone().into_bytes();
            async move { Ok::<_, tower::BoxError>(Response::new(Body::from(body))) }
        };
        let client = client::transport::in_process_client(tower::service_fn(serve), "test");
        let informer = SharedInformer::start(Api::all(client), watcher::Config::default(), CancellationToken::new());
        informer.wait_for_cache_sync().await;
        informer
    }

    fn object(namespace: &str, name: &str, labels: Value) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1", "labels": labels}})
    }

    fn names<K: CachedObject>(mut objects: Vec<Arc<K>>) -> Vec<String> {
        objects.sort_by_key(|object| object.name_any());
        objects.iter().map(|object| object.name_any()).collect()
    }

    fn labels(of: Value) -> LabelMap {
        serde_json::from_value(of).unwrap()
    }

    #[tokio::test]
    async fn selector_finds_the_objects_that_have_all_its_pairs() {
        let maps: SharedInformer<ConfigMap> = informer(vec![
            object("ns", "a", json!({"app": "web", "tier": "x"})),
            object("ns", "b", json!({"app": "web"})),
            object("ns", "none", Value::Null),
            object("other", "c", json!({"app": "web", "tier": "x"})),
        ])
        .await;
        index_by_label(&maps);
        let found = |selector| names(objects_with_labels(&maps, "ns", &labels(selector)));
        assert_eq!(found(json!({"app": "web"})), ["a", "b"]);
        assert_eq!(found(json!({"app": "web", "tier": "x"})), ["a"]);
        assert!(found(json!({"app": "web", "tier": "y"})).is_empty() && found(json!({})).is_empty());
    }

    #[tokio::test]
    async fn labels_find_the_selectors_that_match_them() {
        let service = |namespace, name, selector| {
            let mut service = object(namespace, name, Value::Null);
            service["spec"] = json!({"selector": selector});
            service
        };
        let services: SharedInformer<Service> = informer(vec![
            service("ns", "web", json!({"app": "web"})),
            service("ns", "narrow", json!({"app": "web", "tier": "x"})),
            service("ns", "tier", json!({"tier": "x"})),
            service("ns", "none", json!({})),
            service("other", "far", json!({"app": "web"})),
        ])
        .await;
        fn selector(service: &Service) -> Option<&LabelMap> {
            service.spec.as_ref()?.selector.as_ref()
        }
        index_by_selector(&services, selector);
        let found = |of: Value| names(objects_selecting(&services, "ns", Some(&labels(of)), selector));
        assert_eq!(found(json!({"app": "web", "tier": "x", "z": "z"})), ["narrow", "tier", "web"]);
        assert_eq!(found(json!({"app": "web"})), ["web"]);
        assert!(found(json!({"app": "api"})).is_empty());
        assert!(objects_selecting(&services, "ns", None, selector).is_empty());
    }
}
