//! kube-rs: typed objects, server-side apply, and a watcher that starts with a streaming list.

use std::collections::BTreeMap;

use ferry_tests::{EVENTUAL_TIMEOUT, TestApiServer};
use futures::TryStreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, reflector, watcher},
};

async fn client(server: &TestApiServer) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("it is usable");
    Client::try_from(config).expect("a client")
}

fn map(name: &str, label: &str) -> ConfigMap {
    let labels = BTreeMap::from([("set".to_owned(), label.to_owned())]);
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), labels: Some(labels), ..Default::default() },
        ..Default::default()
    }
}

#[tokio::test]
async fn kube_rs_reads_and_writes_typed_objects() {
    let server = TestApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let created = api.create(&PostParams::default(), &map("typed", "a")).await.expect("created");
    let mut changed = created.clone();
    changed.data = Some(BTreeMap::from([("k".into(), "v".into())]));
    let updated = api.replace("typed", &PostParams::default(), &changed).await.expect("replaced");
    assert_ne!(created.resource_version(), updated.resource_version());
    let conflict = api.replace("typed", &PostParams::default(), &created).await.expect_err("it is old");
    assert!(matches!(&conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));
    let patch = serde_json::json!({"data": {"l": "w"}});
    let patched = api.patch("typed", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(patched.data.as_ref().map(BTreeMap::len), Some(2));
    assert_eq!(api.get("typed").await.expect("read"), patched);
    let listed = api.list(&ListParams::default().labels("set=a").fields("metadata.name=typed")).await.expect("listed");
    assert_eq!(listed.items, [patched]);
    let metadata = api.list_metadata(&ListParams::default().labels("set=a")).await.expect("listed");
    assert_eq!(metadata.items[0].name_any(), "typed");
    api.delete("typed", &DeleteParams::default()).await.expect("deleted");
    assert!(api.get_opt("typed").await.expect("asked").is_none());
}

#[tokio::test]
async fn kube_rs_applies() {
    let server = TestApiServer::start();
    let api: Api<Deployment> = Api::default_namespaced(client(&server).await);
    let applied = |replicas: u32| {
        serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let made = api.patch("d", &PatchParams::apply("one"), &Patch::Apply(applied(1))).await.expect("applied");
    assert_eq!(made.metadata.generation, Some(1));
    let again = api.patch("d", &PatchParams::apply("one"), &Patch::Apply(applied(1))).await.expect("applied");
    assert_eq!(made.resource_version(), again.resource_version(), "what changes nothing writes nothing");
    let refused = api.patch("d", &PatchParams::apply("two"), &Patch::Apply(applied(2))).await.expect_err("owned");
    assert!(matches!(&refused, kube::Error::Api(status) if status.message.contains(".spec.replicas")), "{refused}");
    let forced = PatchParams::apply("two").force();
    let forced = api.patch("d", &forced, &Patch::Apply(applied(2))).await.expect("forced");
    assert_eq!(forced.spec.and_then(|spec| spec.replicas), Some(2));
    let scale = api.get_scale("d").await.expect("its scale");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(2));
}

/// The reflector's store ends equal to the list, with objects from before and after the watch began.
#[tokio::test]
async fn kube_rs_watches_from_a_streaming_list() {
    let server = TestApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    for index in 0..20 {
        api.create(&PostParams::default(), &map(&format!("m-{index}"), "a")).await.expect("created");
    }
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists().labels("set=a");
    let mut events = std::pin::pin!(watcher(api.clone(), config).reflect(writer));
    let ready = async {
        while let Some(event) = events.try_next().await.expect("no error") {
            if matches!(event, watcher::Event::InitDone) {
                return;
            }
        }
    };
    tokio::time::timeout(EVENTUAL_TIMEOUT, ready).await.expect("the list ends");
    assert_eq!(store.len(), 20);
    change(&api).await;
    let last = api.create(&PostParams::default(), &map("last", "a")).await.expect("created");
    let caught_up = async {
        while let Some(event) = events.try_next().await.expect("no error") {
            if matches!(&event, watcher::Event::Apply(map) if map.name_any() == "last") {
                return;
            }
        }
    };
    tokio::time::timeout(EVENTUAL_TIMEOUT, caught_up).await.expect("the last change comes");
    let mut listed = api.list(&ListParams::default().labels("set=a")).await.expect("listed").items;
    let mut held: Vec<ConfigMap> = store.state().iter().map(|map| (**map).clone()).collect();
    listed.sort_by_key(ResourceExt::name_any);
    held.sort_by_key(ResourceExt::name_any);
    assert!(held.contains(&last));
    assert_eq!(held, listed);
    assert_eq!(held.len(), 20 - 5 - 5 + 5 + 1);
}

/// Five objects leave the selection, five are deleted, five change, five are new.
async fn change(api: &Api<ConfigMap>) {
    let params = PostParams::default();
    for index in 0..5 {
        let leave = serde_json::json!({"metadata": {"labels": {"set": "b"}}});
        api.patch(&format!("m-{index}"), &PatchParams::default(), &Patch::Merge(&leave)).await.expect("patched");
        api.delete(&format!("m-{}", index + 5), &DeleteParams::default()).await.expect("deleted");
        let data = serde_json::json!({"data": {"k": "v"}});
        api.patch(&format!("m-{}", index + 10), &PatchParams::default(), &Patch::Strategic(&data))
            .await
            .expect("patched");
        api.create(&params, &map(&format!("n-{index}"), "a")).await.expect("created");
    }
}
