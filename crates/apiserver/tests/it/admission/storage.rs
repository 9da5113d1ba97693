//! DefaultStorageClass, DefaultIngressClass and PersistentVolumeClaimResize, case by case.

use serde_json::{Value, json};

use crate::admission::world::{World, merge};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const STORAGE: &str = "/apis/storage.k8s.io/v1/storageclasses";
const BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
const MARK: &str = "storageclass.kubernetes.io/is-default-class";
const OLD: &str = "volume.beta.kubernetes.io/storage-class";

fn claim(name: &str, annotations: Value, more: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    merge(&mut spec, more);
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

async fn class(world: &World, name: &str, annotations: Value, grows: Value) {
    let class = json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "p", "allowVolumeExpansion": grows});
    world.create(STORAGE, class).await;
}

/// The classes of a claim that says nothing, names one, names none, and names one as in older days.
async fn classes(world: &World) -> [Value; 4] {
    let given = [
        claim("c", json!({}), json!({})),
        claim("c", json!({}), json!({"storageClassName": "x"})),
        claim("c", json!({}), json!({"storageClassName": ""})),
        claim("c", json!({OLD: "y"}), json!({})),
    ];
    let mut got = [Value::Null, Value::Null, Value::Null, Value::Null];
    for (given, got) in given.into_iter().zip(&mut got) {
        let made = world.check("POST", &format!("{CLAIMS}?dryRun=All"), given, (201, "")).await;
        *got = made.body["spec"].get("storageClassName").cloned().unwrap_or_default();
    }
    got
}

#[tokio::test]
async fn claims_get_the_default_class() {
    let world = World::new(&[]).await;
    let want = |usual: Value| [usual, json!("x"), json!(""), Value::Null];
    assert_eq!(classes(&world).await, want(Value::Null), "there is no class");
    class(&world, "plain", json!({}), json!(false)).await;
    class(&world, "not", json!({MARK: "false"}), json!(false)).await;
    assert_eq!(classes(&world).await, want(Value::Null), "none is marked");
    class(&world, "usual", json!({BETA: "true"}), json!(true)).await;
    assert_eq!(classes(&world).await, want(json!("usual")), "one is");
    let unmark = json!({"metadata": {"annotations": {BETA: null}}});
    world.check("PATCH", &format!("{STORAGE}/usual"), unmark, (200, "")).await;
    class(&world, "other", json!({MARK: "true"}), json!(true)).await;
    assert_eq!(classes(&world).await, want(json!("other")), "another is");
}

#[tokio::test]
async fn ingresses_get_the_default_class() {
    let world = World::new(&[]).await;
    let (ingresses, classes) =
        ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", "/apis/networking.k8s.io/v1/ingressclasses");
    let mark = "ingressclass.kubernetes.io/is-default-class";
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let check = async |want: Value| {
        for (annotations, class, want) in [
            (json!({}), None, want),
            (json!({}), Some("x"), json!("x")),
            (json!({"kubernetes.io/ingress.class": "y"}), None, Value::Null),
            (json!({"other": "z"}), Some("x"), json!("x")),
        ] {
            let mut spec = json!({"defaultBackend": backend});
            if let Some(class) = class {
                spec["ingressClassName"] = class.into();
            }
            let body = json!({"metadata": {"name": "i", "annotations": annotations}, "spec": spec});
            let made = world.check("POST", &format!("{ingresses}?dryRun=All"), body, (201, "")).await;
            assert_eq!(made.body["spec"].get("ingressClassName").cloned().unwrap_or_default(), want);
        }
    };
    check(Value::Null).await;
    let class = |name: &str, marked: &str| json!({"metadata": {"name": name, "annotations": {mark: marked}}, "spec": {"controller": "e.com/c"}});
    world.create(classes, class("not", "false")).await;
    check(Value::Null).await;
    world.create(classes, class("usual", "true")).await;
    check(json!("usual")).await;
}

#[tokio::test]
async fn only_bound_claims_of_some_classes_grow() {
    let world = World::new(&[]).await;
    class(&world, "grows", json!({}), json!(true)).await;
    class(&world, "fixed", json!({}), json!(false)).await;
    class(&world, "silent", json!({}), Value::Null).await;
    let by_hand = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    for (class, annotation, why) in [
        ("grows", "", ""),
        ("fixed", "", by_hand),
        ("silent", "", by_hand),
        ("gone", "", by_hand),
        ("", "", by_hand),
        ("", "grows", ""),
        ("", "fixed", by_hand),
    ] {
        let name = format!("c-{class}-{annotation}-c");
        let annotations = if annotation.is_empty() { json!({}) } else { json!({OLD: annotation}) };
        world.create(CLAIMS, claim(&name, annotations, json!({"storageClassName": class}))).await;
        let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        world.check("PATCH", &format!("{CLAIMS}/{name}/status"), bound, (200, "")).await;
        let path = format!("{CLAIMS}/{name}?dryRun=All");
        let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let refused = format!("persistentvolumeclaims {name:?} is forbidden: {why}");
        let want = if why.is_empty() { (200, "") } else { (403, refused.as_str()) };
        world.check("PATCH", &path, size("2Gi"), want).await;
        world.check("PATCH", &path, size("1024Mi"), (200, "")).await;
    }
}
