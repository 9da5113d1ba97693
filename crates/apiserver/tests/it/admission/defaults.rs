//! Plug-ins that fill something in: Priority, DefaultTolerationSeconds, TaintNodesByCondition, StorageObjectInUseProtection,
//! DefaultStorageClass, DefaultIngressClass, RuntimeClass, PodTopologyLabels, PersistentVolumeClaimResize.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, pod};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

#[tokio::test]
async fn priorities_follow_from_classes() {
    let world = World::new(&[]).await;
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    world.create(CLASSES, class("high", 1000, false)).await;
    let mut never = class("never", 10, false);
    never["preemptionPolicy"] = "Never".into();
    world.create(CLASSES, never).await;
    let check = async |spec: Value, want: Result<(Value, i64, &str), &str>| match want {
        Ok((class, priority, policy)) => {
            let made = world.check("POST", PODS, pod("p", spec), (201, "")).await.body["spec"].clone();
            let name = made.get("priorityClassName").cloned().unwrap_or_default();
            assert_eq!((name, &made["priority"], &made["preemptionPolicy"]), (class, &json!(priority), &json!(policy)));
        }
        Err(why) => {
            let refused = format!("pods \"p\" is forbidden: {why}");
            world.check("POST", PODS, pod("p", spec), (403, &refused)).await;
        }
    };
    let lower = "PreemptLowerPriority";
    check(json!({}), Ok((Value::Null, 0, lower))).await;
    check(json!({"priorityClassName": "high"}), Ok((json!("high"), 1000, lower))).await;
    check(json!({"priorityClassName": "high", "priority": 1000}), Ok((json!("high"), 1000, lower))).await;
    check(json!({"priorityClassName": "never"}), Ok((json!("never"), 10, "Never"))).await;
    let critical = "system-node-critical";
    check(json!({"priorityClassName": critical}), Ok((json!(critical), 2_000_001_000, lower))).await;
    check(json!({"priorityClassName": "none"}), Err("no PriorityClass with name none was found")).await;
    let number =
        "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed";
    check(json!({"priority": 7}), Err(&format!("{number} 0 from the given PriorityClass name"))).await;
    let policy = "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller \
                  computed PreemptLowerPriority from the given PriorityClass name";
    check(json!({"preemptionPolicy": "Never", "priorityClassName": "high"}), Err(policy)).await;
    world.create(CLASSES, class("usual", 5, true)).await;
    check(json!({}), Ok((json!("usual"), 5, lower))).await;
    let second = "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as default. \
                  Only one default can exist";
    world.check("POST", CLASSES, class("other", 6, true), (403, second)).await;
    world.check("PATCH", &format!("{CLASSES}/usual"), json!({"description": "d"}), (200, "")).await;
    let second = second.replace("\"other\"", "\"high\"");
    let marked = json!({"globalDefault": true});
    world.check("PATCH", &format!("{CLASSES}/high"), marked, (403, &second)).await;
}

#[tokio::test]
async fn pods_leave_bad_nodes_after_a_while() {
    let mut settings = AdmissionOptions::default();
    settings.toleration_seconds = Some((60, 90));
    let world = World::with(settings).await;
    let check = async |tolerations: Value, want: &[(&str, i64)]| {
        let made = world.check("POST", PODS, pod("p", json!({"tolerations": tolerations})), (201, "")).await;
        let added = made.body["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let added: Vec<Value> = added.into_iter().filter(|t| !tolerations.as_array().unwrap().contains(t)).collect();
        let want: Vec<Value> = want
            .iter()
            .map(|(key, seconds)| {
                json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": seconds})
            })
            .collect();
        assert_eq!(added, want, "{tolerations}");
    };
    check(json!([]), &[("not-ready", 60), ("unreachable", 90)]).await;
    check(json!([{"operator": "Exists"}]), &[]).await;
    check(json!([{"operator": "Exists", "effect": "NoSchedule"}]), &[("not-ready", 60), ("unreachable", 90)]).await;
    let ready = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]);
    check(ready, &[("unreachable", 90)]).await;
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]);
    check(unreachable, &[("not-ready", 60)]).await;
}

#[tokio::test]
async fn new_nodes_take_no_pods_and_storage_is_kept_while_it_is_used() {
    let world = World::new(&[]).await;
    let nodes = "/api/v1/nodes?dryRun=All";
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let other = json!({"key": "k", "effect": "NoExecute"});
    for (given, want) in
        [(json!([]), json!([taint])), (json!([taint]), json!([taint])), (json!([other]), json!([other, taint]))]
    {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": given}});
        let made = world.check("POST", nodes, node, (201, "")).await;
        assert_eq!(made.body["spec"]["taints"], want);
    }
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let made = [
        ("/api/v1/namespaces/default/persistentvolumeclaims", json!({"spec": claim}), "kubernetes.io/pvc-protection"),
        ("/api/v1/persistentvolumes", json!({"spec": volume}), "kubernetes.io/pv-protection"),
        (
            "/apis/storage.k8s.io/v1/volumeattributesclasses",
            json!({"driverName": "d.e.com", "parameters": {"a": "b"}}),
            "kubernetes.io/vac-protection",
        ),
    ];
    for (path, object, finalizer) in made {
        for given in [json!([]), json!([finalizer]), json!(["e.com/f"]), json!([finalizer, "e.com/f"])] {
            let mut object = object.clone();
            object["metadata"] = json!({"name": "x", "finalizers": given});
            let made = world.check("POST", &format!("{path}?dryRun=All"), object, (201, "")).await;
            let mut want = given.as_array().unwrap().clone();
            if !want.contains(&finalizer.into()) {
                want.push(finalizer.into());
            }
            assert_eq!(made.body["metadata"]["finalizers"], Value::Array(want), "{path}");
        }
        // Only new objects get it: a controller may take it away.
        let mut object = object.clone();
        object["metadata"] = json!({"name": "x"});
        world.create(path, object).await;
        let free = json!({"metadata": {"finalizers": null}});
        let freed = world.check("PATCH", &format!("{path}/x"), free, (200, "")).await;
        assert_eq!(freed.body["metadata"].get("finalizers"), None, "{path}");
    }
}

#[tokio::test]
async fn claims_and_ingresses_get_the_default_class_and_only_some_claims_grow() {
    let world = World::new(&[]).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, more: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        crate::admission::world::merge(&mut spec, more);
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let class_of = async |path: &str, body: Value, field: &str| {
        let made = world.check("POST", &format!("{path}?dryRun=All"), body, (201, "")).await;
        made.body["spec"].get(field).cloned().unwrap_or_default()
    };
    assert_eq!(class_of(claims, claim("c", json!({})), "storageClassName").await, Value::Null);
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let marked = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = |name: &str, annotations: &Value, grows: bool| json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "p", "allowVolumeExpansion": grows});
    world.create(classes, class("plain", &json!({}), false)).await;
    assert_eq!(class_of(claims, claim("c", json!({})), "storageClassName").await, Value::Null);
    world.create(classes, class("usual", &marked, true)).await;
    assert_eq!(class_of(claims, claim("c", json!({})), "storageClassName").await, json!("usual"));
    assert_eq!(class_of(claims, claim("c", json!({"storageClassName": "x"})), "storageClassName").await, json!("x"));
    assert_eq!(class_of(claims, claim("c", json!({"storageClassName": ""})), "storageClassName").await, json!(""));
    let mut old = claim("c", json!({}));
    old["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "y"});
    assert_eq!(class_of(claims, old, "storageClassName").await, Value::Null);

    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    assert_eq!(class_of(ingresses, ingress.clone(), "ingressClassName").await, Value::Null);
    let marked = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    for name in ["b", "a"] {
        let class = json!({"metadata": {"name": name, "annotations": marked}, "spec": {"controller": "e.com/c"}});
        world.create("/apis/networking.k8s.io/v1/ingressclasses", class).await;
    }
    let class = class_of(ingresses, ingress, "ingressClassName").await;
    assert!(class == "a" || class == "b", "{class}");

    for (name, class) in [("fixed", "plain"), ("grows", "usual")] {
        world.create(claims, claim(name, json!({"storageClassName": class}))).await;
    }
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let resize = async |name: &str, why: &str| {
        let refused = format!("persistentvolumeclaims {name:?} is forbidden: {why}");
        let want = if why.is_empty() { (200, "") } else { (403, refused.as_str()) };
        world.check("PATCH", &format!("{claims}/{name}?dryRun=All"), more.clone(), want).await;
    };
    let unbound =
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    let answer = world.send("PATCH", &format!("{claims}/grows"), &more).await;
    assert!(answer.code == 422 && answer.body["message"].as_str().unwrap().contains(unbound), "{}", answer.body);
    for name in ["fixed", "grows"] {
        let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        world.check("PATCH", &format!("{claims}/{name}/status"), bound, (200, "")).await;
    }
    resize("grows", "").await;
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    resize("fixed", why).await;
}

#[tokio::test]
async fn runtimes_have_a_price_and_a_place() {
    let world = World::new(&[]).await;
    let class = |name: &str, more: Value| {
        let mut class = json!({"metadata": {"name": name}, "handler": "h"});
        crate::admission::world::merge(&mut class, more);
        class
    };
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    world.create(classes, class("plain", json!({}))).await;
    world.create(classes, class("dear", json!({"overhead": {"podFixed": {"cpu": "100m"}}}))).await;
    let tolerated = json!([{"key": "k", "operator": "Exists"}]);
    let place = json!({"scheduling": {"nodeSelector": {"a": "1"}, "tolerations": tolerated}});
    world.create(classes, class("placed", place)).await;
    let check = async |spec: Value, why: &str| {
        let refused = format!("pods \"p\" is forbidden: {why}");
        let want = if why.is_empty() { (201, "") } else { (403, refused.as_str()) };
        world.check("POST", PODS, pod("p", spec), want).await.body["spec"].clone()
    };
    check(json!({"runtimeClassName": "plain"}), "").await;
    check(json!({"runtimeClassName": "none"}), "pod rejected: RuntimeClass \"none\" not found").await;
    let spec = check(json!({"runtimeClassName": "dear"}), "").await;
    assert_eq!(spec["overhead"], json!({"cpu": "100m"}));
    check(json!({"runtimeClassName": "dear", "overhead": {"cpu": "0.1"}}), "").await;
    let other = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    check(json!({"runtimeClassName": "dear", "overhead": {"cpu": "200m"}}), other).await;
    check(json!({"runtimeClassName": "dear", "overhead": {"cpu": "100m", "memory": "1"}}), other).await;
    let free = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    check(json!({"runtimeClassName": "plain", "overhead": {"cpu": "200m"}}), free).await;
    check(json!({"overhead": {"cpu": "200m"}}), free).await;
    let spec = check(json!({"runtimeClassName": "placed", "nodeSelector": {"b": "2"}}), "").await;
    assert_eq!(spec["nodeSelector"], json!({"a": "1", "b": "2"}));
    assert!(spec["tolerations"].as_array().unwrap().contains(&tolerated[0]));
    let conflict = "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2";
    check(json!({"runtimeClassName": "placed", "nodeSelector": {"a": "2"}}), conflict).await;
    let spec = check(json!({"runtimeClassName": "placed", "nodeSelector": {"a": "1"}}), "").await;
    assert_eq!(spec["nodeSelector"], json!({"a": "1"}));
    let spec = check(json!({"runtimeClassName": "placed", "tolerations": tolerated}), "").await;
    let same = spec["tolerations"].as_array().unwrap().iter().filter(|one| **one == tolerated[0]);
    assert_eq!(same.count(), 1, "nothing is tolerated twice");
    let spec = check(json!({"nodeSelector": {"a": "2"}}), "").await;
    assert_eq!((spec.get("overhead"), &spec["nodeSelector"]), (None, &json!({"a": "2"})), "no class, no change");
    check(json!({"runtimeClassName": "placed", "overhead": {"cpu": "1m"}}), free).await;
}

#[tokio::test]
async fn pods_know_the_zone_of_their_node() {
    let world = World::new(&[]).await;
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    world.create("/api/v1/nodes", json!({"metadata": {"name": "n", "labels": labels}})).await;
    let zone = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    let made = world.check("POST", PODS, pod("p", json!({"nodeName": "n"})), (201, "")).await;
    assert_eq!(made.body["metadata"]["labels"], zone);
    let made = world.check("POST", PODS, pod("p", json!({"nodeName": "none"})), (201, "")).await;
    assert_eq!(made.body["metadata"].get("labels"), None);
    let pods = "/api/v1/namespaces/default/pods";
    let made = world.create(pods, pod("p", json!({}))).await;
    assert_eq!(made["metadata"].get("labels"), None);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    world.check("POST", &format!("{pods}/p/binding"), binding, (201, "")).await;
    assert_eq!(world.send("GET", &format!("{pods}/p"), &json!(null)).await.body["metadata"]["labels"], zone);
}
