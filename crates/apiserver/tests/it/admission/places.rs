//! Placement of pods: PodNodeSelector, PodTolerationRestriction, TaintNodesByCondition, PodTopologyLabels and
//! DefaultTolerationSeconds, case by case.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, names, pod, pod_with};

const PREFIX: &str = "scheduler.alpha.kubernetes.io";

fn settings(enabled: &[&str]) -> AdmissionOptions {
    AdmissionOptions::new(&names(enabled), &names(&["ServiceAccount", "DefaultTolerationSeconds"])).unwrap()
}

async fn namespace(world: &World, name: &str, annotations: Value) {
    world.create("/api/v1/namespaces", json!({"metadata": {"name": name, "annotations": annotations}})).await;
}

#[tokio::test]
async fn namespaces_choose_nodes() {
    let config = json!({"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "pool=usual", "limited": "pool=small,disk=ssd",
        "only": "disk=ssd"}});
    let world = World::with(settings(&["PodNodeSelector"]).with_plugin_config("PodNodeSelector", config)).await;
    let annotated = |text: &str| json!({format!("{PREFIX}/node-selector"): text});
    namespace(&world, "plain", json!({})).await;
    namespace(&world, "limited", annotated("pool=small")).await;
    namespace(&world, "only", annotated("")).await;
    namespace(&world, "own", annotated("a=1, b=2")).await;
    namespace(&world, "broken", annotated("a")).await;
    let conflict = "pods \"p\" is forbidden: pod node label selector conflicts with its namespace node label selector";
    let outside = "pods \"p\" is forbidden: pod node label selector labels conflict with its namespace whitelist";
    type Answered<'a> = Result<Value, (u16, &'a str)>;
    let cases: [(&str, Value, Answered<'_>); 14] = [
        ("plain", json!({}), Ok(json!({"pool": "usual"}))),
        ("plain", json!({"a": "b"}), Ok(json!({"a": "b", "pool": "usual"}))),
        ("plain", json!({"pool": "usual"}), Ok(json!({"pool": "usual"}))),
        ("plain", json!({"pool": "other"}), Err((403, conflict))),
        ("limited", json!({}), Ok(json!({"pool": "small"}))),
        ("limited", json!({"disk": "ssd"}), Ok(json!({"disk": "ssd", "pool": "small"}))),
        ("limited", json!({"disk": "hdd"}), Err((403, outside))),
        ("limited", json!({"x": "y"}), Err((403, outside))),
        ("limited", json!({"pool": "usual"}), Err((403, conflict))),
        ("only", json!({}), Ok(Value::Null)),
        ("only", json!({"disk": "ssd"}), Ok(json!({"disk": "ssd"}))),
        ("only", json!({"disk": "hdd"}), Err((403, outside))),
        ("own", json!({}), Ok(json!({"a": "1", "b": "2"}))),
        ("own", json!({"a": "2"}), Err((403, conflict))),
    ];
    for (name, given, want) in cases {
        let path = format!("/api/v1/namespaces/{name}/pods?dryRun=All");
        let body = pod("p", json!({"nodeSelector": given}));
        let answer = world.check("POST", &path, body, want.as_ref().map_or_else(|why| *why, |_| (201, ""))).await;
        if let Ok(selector) = want {
            assert_eq!(answer.body["spec"].get("nodeSelector").cloned().unwrap_or_default(), selector, "{name}");
        }
    }
    let answer = world.send("POST", "/api/v1/namespaces/broken/pods", &pod("p", json!({}))).await;
    assert_eq!(answer.code, 500, "{}", answer.body);
}

#[tokio::test]
async fn namespaces_choose_tolerations() {
    let world = World::with(settings(&["PodTolerationRestriction"])).await;
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let (k, l) = (exists("k"), exists("l"));
    let pressure = json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"});
    let usual = format!("{PREFIX}/defaultTolerations");
    let allowed = format!("{PREFIX}/tolerationsWhitelist");
    namespace(&world, "plain", json!({})).await;
    namespace(&world, "usual", json!({usual.clone(): json!([k]).to_string()})).await;
    namespace(&world, "allowed", json!({allowed.clone(): json!([k]).to_string()})).await;
    namespace(&world, "both", json!({usual: json!([l]).to_string(), allowed: json!([k]).to_string()})).await;
    let outside =
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    let timed = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let cases: [(&str, bool, Value, Result<Value, &str>); 13] = [
        ("plain", false, json!([]), Ok(Value::Null)),
        ("plain", false, json!([k]), Ok(json!([k]))),
        ("plain", true, json!([]), Ok(json!([pressure]))),
        ("plain", true, json!([pressure]), Ok(json!([pressure]))),
        ("usual", false, json!([]), Ok(json!([k]))),
        ("usual", false, json!([k]), Ok(json!([k]))),
        ("usual", false, json!([l]), Ok(json!([l, k]))),
        ("allowed", false, json!([]), Ok(Value::Null)),
        ("allowed", false, json!([k]), Ok(json!([k]))),
        ("allowed", false, json!([timed]), Ok(json!([timed]))),
        ("allowed", false, json!([l]), Err(outside)),
        ("allowed", true, json!([]), Err(outside)),
        ("both", false, json!([]), Err(outside)),
    ];
    for (name, burstable, given, want) in cases {
        let asks = if burstable { json!({"resources": {"requests": {"cpu": "1"}}}) } else { json!({}) };
        let mut body = pod_with("p", asks);
        body["spec"]["tolerations"] = given.clone();
        let path = format!("/api/v1/namespaces/{name}/pods?dryRun=All");
        let answer =
            world.check("POST", &path, body, want.as_ref().map_or_else(|why| (500, *why), |_| (201, ""))).await;
        if let Ok(tolerations) = want {
            let got = answer.body["spec"].get("tolerations").cloned().unwrap_or_default();
            assert_eq!(got, tolerations, "{name} {given}");
        }
    }
}

#[tokio::test]
async fn new_nodes_are_not_ready() {
    let world = World::new(&[]).await;
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let ready = taint("node.kubernetes.io/not-ready", "NoSchedule");
    let mut valued = ready.clone();
    valued["value"] = "x".into();
    let others = [
        taint("a", "NoSchedule"),
        taint("a", "NoExecute"),
        taint("a", "PreferNoSchedule"),
        taint("node.kubernetes.io/not-ready", "NoExecute"),
        taint("node.kubernetes.io/not-ready", "PreferNoSchedule"),
        taint("node.kubernetes.io/unreachable", "NoSchedule"),
    ];
    let mut cases =
        vec![(json!([]), json!([ready])), (json!([ready]), json!([ready])), (json!([valued]), json!([valued]))];
    cases.extend(others.iter().map(|other| (json!([other]), json!([other, ready]))));
    cases.extend([others[0].clone()].iter().map(|other| (json!([ready, other]), json!([ready, other]))));
    cases.push((json!([others[0], others[1]]), json!([others[0], others[1], ready])));
    cases.push((Value::Null, json!([ready])));
    assert!(cases.len() >= 12);
    for (given, want) in cases {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": given}});
        let made = world.check("POST", "/api/v1/nodes?dryRun=All", node, (201, "")).await;
        assert_eq!(made.body["spec"]["taints"], want, "{given}");
    }
    world.create("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let cleared = json!({"spec": {"taints": null}});
    let made = world.check("PATCH", "/api/v1/nodes/n", cleared, (200, "")).await;
    assert_eq!(made.body["spec"].get("taints"), None, "only new ones are marked");
}

#[tokio::test]
async fn pods_are_labelled_like_their_nodes() {
    let world = World::with(settings(&[])).await;
    let (zone, region) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
    let nodes = [
        ("both", json!({zone: "z", region: "r", "other": "o"})),
        ("zone", json!({zone: "z"})),
        ("region", json!({region: "r"})),
        ("neither", json!({"other": "o"})),
    ];
    for (name, labels) in &nodes {
        world.create("/api/v1/nodes", json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    let pods = "/api/v1/namespaces/default/pods";
    let cases = [
        ("both", json!({}), json!({zone: "z", region: "r"})),
        ("both", json!({"a": "b"}), json!({"a": "b", zone: "z", region: "r"})),
        ("both", json!({zone: "mine"}), json!({zone: "z", region: "r"})),
        ("zone", json!({}), json!({zone: "z"})),
        ("zone", json!({region: "mine"}), json!({zone: "z", region: "mine"})),
        ("region", json!({}), json!({region: "r"})),
        ("neither", json!({}), Value::Null),
        ("neither", json!({"a": "b"}), json!({"a": "b"})),
        ("nowhere", json!({}), Value::Null),
    ];
    for (node, labels, want) in cases {
        let mut body = pod("p", json!({"nodeName": node}));
        body["metadata"]["labels"] = labels.clone();
        let made = world.check("POST", &format!("{pods}?dryRun=All"), body, (201, "")).await;
        assert_eq!(made.body["metadata"].get("labels").cloned().unwrap_or_default(), want, "{node} {labels}");
    }
    for (node, want) in
        [("both", json!({zone: "z", region: "r"})), ("zone", json!({zone: "z"})), ("neither", Value::Null)]
    {
        let path = format!("{pods}/bound-{node}");
        world.create(pods, pod(&format!("bound-{node}"), json!({}))).await;
        let binding = json!({"metadata": {"name": format!("bound-{node}")}, "target": {"kind": "Node", "name": node}});
        world.check("POST", &format!("{path}/binding"), binding, (201, "")).await;
        let bound = world.send("GET", &path, &Value::Null).await;
        assert_eq!(bound.body["metadata"].get("labels").cloned().unwrap_or_default(), want, "{node}");
    }
}

#[tokio::test]
async fn pods_stay_on_bad_nodes_for_a_while() {
    let world = World::with(AdmissionOptions::new(&[], &names(&["ServiceAccount"])).unwrap()).await;
    let added = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let (not_ready, unreachable) = (added("not-ready"), added("unreachable"));
    let own = |key: &str, effect: Option<&str>| {
        let mut own = json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists"});
        if let Some(effect) = effect {
            own["effect"] = effect.into();
        }
        own
    };
    let both = [&not_ready, &unreachable];
    let cases: [(Value, &[&Value]); 12] = [
        (json!([]), &both),
        (json!([{"operator": "Exists"}]), &[]),
        (json!([{"operator": "Exists", "effect": "NoExecute"}]), &[]),
        (json!([{"operator": "Exists", "effect": "NoSchedule"}]), &both),
        (json!([own("not-ready", Some("NoExecute"))]), &[&unreachable]),
        (json!([own("not-ready", None)]), &[&unreachable]),
        (json!([own("not-ready", Some("NoSchedule"))]), &both),
        (json!([own("unreachable", Some("NoExecute"))]), &[&not_ready]),
        (json!([own("unreachable", None)]), &[&not_ready]),
        (json!([own("unreachable", None), own("not-ready", None)]), &[]),
        (json!([own("disk-pressure", None)]), &both),
        (json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}]), &both),
    ];
    for (given, more) in cases {
        let body = pod("p", json!({"tolerations": given}));
        let made = world.check("POST", "/api/v1/namespaces/default/pods?dryRun=All", body, (201, "")).await;
        let mut want = given.as_array().unwrap().clone();
        want.extend(more.iter().map(|toleration| (*toleration).clone()));
        let got = made.body["spec"].get("tolerations").cloned().unwrap_or(json!([]));
        assert_eq!(got, Value::Array(want), "{given}");
    }
}
