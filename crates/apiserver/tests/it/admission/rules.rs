//! Plug-ins of one rule each, case by case: LimitPodHardAntiAffinityTopology, SecurityContextDeny,
//! ExtendedResourceToleration, AlwaysPullImages, DenyServiceExternalIPs.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{Case, Said, World, names, pod, pod_with};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DRY: &str = "/api/v1/namespaces/default/pods?dryRun=All";

/// A server with one plug-in more, and without those that change pods too.
async fn world(plugin: &str) -> World {
    let disabled = names(&["ServiceAccount", "DefaultTolerationSeconds"]);
    World::with(AdmissionOptions::new(&names(&[plugin]), &disabled).unwrap()).await
}

fn forbidden(why: &str) -> String {
    format!("pods \"p\" is forbidden: {why}")
}

#[tokio::test]
async fn pods_keep_each_other_off_nodes_only() {
    let world = world("LimitPodHardAntiAffinityTopology").await;
    let host = "kubernetes.io/hostname";
    let terms = |keys: &[&str]| -> Value {
        let term = |key: &&str| json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": key});
        keys.iter().map(term).collect()
    };
    let required = |kind: &str, keys: &[&str]| {
        pod("p", json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms(keys)}}}))
    };
    let why = |key: &str| {
        let what = "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey";
        forbidden(&format!("{what} {key} but only key {host} is allowed"))
    };
    let preferred = json!([{"weight": 1, "podAffinityTerm": terms(&["zone"])[0]}]);
    let preferred =
        json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    let (zone, region, rack) = (why("topology.kubernetes.io/zone"), why("region"), why("rack"));
    let anti = "podAntiAffinity";
    let fine = |body| -> Case<'_> { ("POST", DRY, body, 201, Said::Fine) };
    let bad = |body, why| -> Case<'_> { ("POST", DRY, body, 403, Said::Message(why)) };
    world
        .table(&[
            fine(pod("p", json!({}))),
            fine(pod("p", json!({"affinity": {}}))),
            fine(required(anti, &[])),
            fine(required(anti, &[host])),
            fine(required(anti, &[host, host])),
            fine(pod("p", preferred)),
            fine(required("podAffinity", &["zone"])),
            bad(required(anti, &["topology.kubernetes.io/zone"]), &zone),
            bad(required(anti, &["region"]), &region),
            bad(required(anti, &[host, "rack"]), &rack),
            bad(required(anti, &["rack", host]), &rack),
            bad(required(anti, &["rack", "region"]), &rack),
            bad(required(anti, &["region", "rack"]), &region),
        ])
        .await;
}

#[tokio::test]
async fn nobody_says_as_whom_containers_run() {
    let world = world("SecurityContextDeny").await;
    let whole = |context: Value| pod("p", json!({"securityContext": context}));
    let own = |context: Value| pod_with("p", json!({"securityContext": context}));
    let first =
        |context: Value| pod("p", json!({"initContainers": [{"name": "i", "image": "i", "securityContext": context}]}));
    let level = json!({"seLinuxOptions": {"level": "s0"}});
    for (body, why) in [
        (pod("p", json!({})), ""),
        (whole(json!({})), ""),
        (whole(json!({"runAsNonRoot": true})), ""),
        (whole(json!({"supplementalGroups": []})), ""),
        (own(json!({"privileged": true})), ""),
        (own(json!({"readOnlyRootFilesystem": true, "runAsGroup": 1})), ""),
        (whole(json!({"supplementalGroups": [1]})), "pod.Spec.SecurityContext.SupplementalGroups"),
        (whole(level.clone()), "pod.Spec.SecurityContext.SELinuxOptions"),
        (whole(json!({"runAsUser": 0})), "pod.Spec.SecurityContext.RunAsUser"),
        (whole(json!({"fsGroup": 5})), "pod.Spec.SecurityContext.FSGroup"),
        (whole(json!({"fsGroup": 5, "runAsUser": 5})), "pod.Spec.SecurityContext.RunAsUser"),
        (own(level.clone()), "SecurityContext.SELinuxOptions"),
        (own(json!({"runAsUser": 5})), "SecurityContext.RunAsUser"),
        (first(level), "SecurityContext.SELinuxOptions"),
        (first(json!({"runAsUser": 5})), "SecurityContext.RunAsUser"),
    ] {
        let refused = forbidden(&format!("{why} is forbidden"));
        let want = if why.is_empty() { (201, "") } else { (403, refused.as_str()) };
        world.check("POST", DRY, body, want).await;
    }
}

#[tokio::test]
async fn pods_tolerate_the_nodes_of_their_devices() {
    let world = world("ExtendedResourceToleration").await;
    let asks = |list: Value| json!({"name": "c", "image": "i", "resources": {"limits": list}});
    let exists = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    let (gpu, nic) = (exists("e.com/gpu"), exists("e.com/nic"));
    let other = json!({"key": "k", "operator": "Exists"});
    let all = json!({"key": "e.com/gpu", "operator": "Exists"});
    let equal = json!({"key": "e.com/gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"});
    for (limits, given, want) in [
        (json!([{}]), json!([]), json!([])),
        (json!([{"cpu": "1", "memory": "1Gi"}]), json!([]), json!([])),
        (json!([{"ephemeral-storage": "1Gi"}]), json!([]), json!([])),
        (json!([{"e.com/gpu": "1"}]), json!([]), json!([gpu])),
        (json!([{"e.com/gpu": "2", "cpu": "1"}]), json!([]), json!([gpu])),
        (json!([{"e.com/gpu": "1", "e.com/nic": "1"}]), json!([]), json!([gpu, nic])),
        (json!([{"e.com/nic": "1"}, {"e.com/gpu": "1"}]), json!([]), json!([gpu, nic])),
        (json!([{"e.com/gpu": "1"}, {"e.com/gpu": "1"}]), json!([]), json!([gpu])),
        (json!([{"e.com/gpu": "1"}]), json!([other]), json!([other, gpu])),
        (json!([{"e.com/gpu": "1"}]), json!([gpu]), json!([gpu])),
        (json!([{"e.com/gpu": "1"}]), json!([all]), json!([all])),
        (json!([{"e.com/gpu": "1"}]), json!([equal]), json!([equal, gpu])),
        (json!([{"cpu": "1"}]), json!([other]), json!([other])),
    ] {
        let mut containers: Vec<Value> = limits.as_array().unwrap().iter().map(|list| asks(list.clone())).collect();
        containers.iter_mut().enumerate().for_each(|(at, container)| container["name"] = format!("c{at}").into());
        let body = pod("p", json!({"containers": containers, "tolerations": given}));
        let made = world.check("POST", DRY, body, (201, "")).await;
        let tolerations = made.body["spec"].get("tolerations").cloned().unwrap_or(json!([]));
        assert_eq!(tolerations, want, "{limits} {given}");
    }
}

#[tokio::test]
async fn images_are_always_pulled() {
    let world = world("AlwaysPullImages").await;
    for list in ["containers", "initContainers"] {
        for policy in [None, Some("Always"), Some("IfNotPresent"), Some("Never")] {
            for image in ["i", "i:1"] {
                let mut container = json!({"name": "x", "image": image});
                if let Some(policy) = policy {
                    container["imagePullPolicy"] = policy.into();
                }
                let made = world.check("POST", DRY, pod("p", json!({list: [container]})), (201, "")).await;
                assert_eq!(made.body["spec"][list][0]["imagePullPolicy"], "Always", "{list} {policy:?} {image}");
            }
        }
    }
    world.create(PODS, pod("p", json!({}))).await;
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "imagePullPolicy": "Never"}]}});
    let made = world.check("PATCH", &format!("{PODS}/p/ephemeralcontainers"), ephemeral, (200, "")).await;
    assert_eq!(made.body["spec"]["ephemeralContainers"][0]["imagePullPolicy"], "Never", "upstream leaves these alone");
}

#[tokio::test]
async fn nobody_takes_addresses_of_others() {
    let world = world("DenyServiceExternalIPs").await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, addresses: Value| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 1}], "externalIPs": addresses}});
    // Those that were there before the rule stay.
    world.create(services, service("none", json!([]))).await;
    let denied =
        |name: &str| format!("services {name:?} is forbidden: Use of external IPs is denied by admission control");
    let (fresh, none) = (denied("fresh"), denied("none"));
    let dry = format!("{services}?dryRun=All");
    let update = format!("{services}/none?dryRun=All");
    let adds = |addresses: Value| json!({"spec": {"externalIPs": addresses}});
    world
        .table(&[
            ("POST", &dry, service("fresh", json!([])), 201, Said::Fine),
            ("POST", &dry, service("fresh", Value::Null), 201, Said::Fine),
            ("POST", &dry, service("fresh", json!(["1.2.3.4"])), 403, Said::Message(&fresh)),
            ("POST", &dry, service("fresh", json!(["1.2.3.4", "5.6.7.8"])), 403, Said::Message(&fresh)),
            ("POST", &dry, service("fresh", json!(["2001:db8::1"])), 403, Said::Message(&fresh)),
            ("POST", &dry, service("fresh", json!(["10.96.0.7"])), 403, Said::Message(&fresh)),
            ("PATCH", &update, json!({"metadata": {"labels": {"a": "b"}}}), 200, Said::Fine),
            ("PATCH", &update, json!({"spec": {"ports": [{"port": 2}]}}), 200, Said::Fine),
            ("PATCH", &update, adds(json!([])), 200, Said::Fine),
            ("PATCH", &update, adds(json!(["1.2.3.4"])), 403, Said::Message(&none)),
            ("PATCH", &update, adds(json!(["1.2.3.4", "5.6.7.8"])), 403, Said::Message(&none)),
        ])
        .await;
    let settings = AdmissionOptions::new(&[], &names(&["ServiceAccount"])).unwrap();
    let free = World::with(settings).await;
    free.check("POST", services, service("s", json!(["1.2.3.4"])), (201, "")).await;
}
