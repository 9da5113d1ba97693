//! Plug-ins that are off unless they are asked for, and the flags that ask for them.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, names, pod, pod_with};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";

#[test]
fn flags_name_plugins_that_exist() {
    let check = |enabled: &[&str], disabled: &[&str], want: &str| {
        let settings = AdmissionOptions::new(&names(enabled), &names(disabled));
        assert_eq!(settings.err().map(|error| error.to_string()).unwrap_or_default(), want);
    };
    check(&["NodeRestriction"], &["PodSecurity", "ServiceAccount"], "");
    check(&["Nope"], &[], "enable-admission-plugins plugin \"Nope\" is unknown");
    check(&[], &["Nope"], "disable-admission-plugins plugin \"Nope\" is unknown");
    let both = "[Priority RuntimeClass] in enable-admission-plugins and disable-admission-plugins overlapped";
    check(&["RuntimeClass", "Priority"], &["Priority", "RuntimeClass"], both);
}

#[test]
fn files_configure_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admission.yaml");
    std::fs::write(dir.path().join("events.yaml"), "limits: [{type: Server, qps: 1, burst: 1}]").unwrap();
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: EventRateLimit\n  path: events.yaml\n";
    std::fs::write(&file, text).unwrap();
    assert!(AdmissionOptions::default().with_config_file(&file).is_ok());
    std::fs::write(&file, "kind: Other\n").unwrap();
    let error = AdmissionOptions::default().with_config_file(&file).unwrap_err();
    assert!(error.to_string().starts_with("unable to read admission control configuration from"), "{error}");
}

async fn refused(world: &World, body: Value, why: &str) {
    let message = format!("pods \"p\" is forbidden: {why}");
    world.check("POST", PODS, body, if why.is_empty() { (201, "") } else { (403, &message) }).await;
}

#[tokio::test]
async fn small_rules() {
    let enabled = [
        "LimitPodHardAntiAffinityTopology",
        "DenyServiceExternalIPs",
        "SecurityContextDeny",
        "AlwaysPullImages",
        "ExtendedResourceToleration",
    ];
    let world = World::new(&enabled).await;
    let affinity = |key: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": key});
        pod("p", json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}))
    };
    refused(&world, affinity("kubernetes.io/hostname"), "").await;
    let why = "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed";
    refused(&world, affinity("zone"), why).await;
    refused(
        &world,
        pod("p", json!({"securityContext": {"runAsUser": 5}})),
        "pod.Spec.SecurityContext.RunAsUser is forbidden",
    )
    .await;
    refused(
        &world,
        pod("p", json!({"securityContext": {"fsGroup": 5}})),
        "pod.Spec.SecurityContext.FSGroup is forbidden",
    )
    .await;
    let own = json!({"securityContext": {"seLinuxOptions": {"level": "s0"}}});
    refused(&world, pod_with("p", own), "SecurityContext.SELinuxOptions is forbidden").await;
    refused(&world, pod_with("p", json!({"securityContext": {"privileged": true}})), "").await;
    let device = json!({"resources": {"limits": {"e.com/gpu": "1"}}, "imagePullPolicy": "Never"});
    let made = world.check("POST", PODS, pod_with("p", device), (201, "")).await;
    assert_eq!(made.body["spec"]["containers"][0]["imagePullPolicy"], "Always");
    let gpu = json!({"key": "e.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert!(made.body["spec"]["tolerations"].as_array().unwrap().contains(&gpu));
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["1.2.3.4"]}});
    let denied = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    world.check("POST", "/api/v1/namespaces/default/services", service, (403, denied)).await;
}

#[tokio::test]
async fn namespaces_choose_nodes_and_tolerations() {
    let selectors = json!({"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "pool=usual", "limited": "pool=small,disk=ssd"}});
    let enabled = names(&["PodNodeSelector", "PodTolerationRestriction"]);
    let settings = AdmissionOptions::new(&enabled, &[]).unwrap().with_plugin_config("PodNodeSelector", selectors);
    let world = World::with(settings).await;
    let made = world.check("POST", PODS, pod("p", json!({"nodeSelector": {"a": "b"}})), (201, "")).await;
    assert_eq!(made.body["spec"]["nodeSelector"], json!({"a": "b", "pool": "usual"}));
    let conflict = "pod node label selector conflicts with its namespace node label selector";
    refused(&world, pod("p", json!({"nodeSelector": {"pool": "other"}})), conflict).await;
    let tolerated = json!([{"key": "k", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]);
    let annotations = json!({"scheduler.alpha.kubernetes.io/node-selector": "pool=small",
        "scheduler.alpha.kubernetes.io/defaultTolerations": json!([{"key": "k", "operator": "Exists"}]).to_string(),
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": tolerated.to_string()});
    world.create("/api/v1/namespaces", json!({"metadata": {"name": "limited", "annotations": annotations}})).await;
    world.create("/api/v1/namespaces/limited/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let pods = "/api/v1/namespaces/limited/pods?dryRun=All";
    let made = world.check("POST", pods, pod("p", json!({})), (201, "")).await;
    assert_eq!(made.body["spec"]["nodeSelector"], json!({"pool": "small"}));
    assert!(made.body["spec"]["tolerations"].as_array().unwrap().contains(&json!({"key": "k", "operator": "Exists"})));
    let outside = "pods \"p\" is forbidden: pod node label selector labels conflict with its namespace whitelist";
    world.check("POST", pods, pod("p", json!({"nodeSelector": {"x": "y"}})), (403, outside)).await;
    let not_allowed =
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    let tolerations = json!({"tolerations": [{"key": "other", "operator": "Exists", "effect": "NoSchedule"}]});
    world.check("POST", pods, pod("p", tolerations), (500, not_allowed)).await;
}

#[tokio::test]
async fn namespaces_are_made_or_wanted_and_everything_can_be_refused() {
    let world = World::new(&["NamespaceAutoProvision", "NamespaceExists"]).await;
    let map = json!({"metadata": {"name": "m"}});
    world.check("POST", "/api/v1/namespaces/fresh/configmaps", map.clone(), (201, "")).await;
    assert_eq!(world.send("GET", "/api/v1/namespaces/fresh", &Value::Null).await.body["status"]["phase"], "Active");
    let (store, _dir) = crate::fixture::store().await;
    let admission = AdmissionOptions::new(&names(&["AlwaysDeny"]), &[]).unwrap();
    let settings = ferry_apiserver::ServerOptions { admission, ..Default::default() };
    let error = ferry_apiserver::Server::with_options(crate::fixture::config(store), settings)
        .await
        .err()
        .map(|error| error.to_string());
    assert!(
        error.unwrap_or_default().contains("admission control is denying all modifications"),
        "nothing can be written at all"
    );
}

#[tokio::test]
async fn events_are_limited() {
    let limits = json!({"limits": [{"type": "Namespace", "qps": 1, "burst": 2}, {"type": "SourceAndObject", "qps": 1, "burst": 1}]});
    let settings =
        AdmissionOptions::new(&names(&["EventRateLimit"]), &[]).unwrap().with_plugin_config("EventRateLimit", limits);
    let world = World::with(settings).await;
    let event = |name: &str, about: &str| json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default", "name": about, "kind": "Pod"}, "source": {"component": "c"}});
    let events = "/api/v1/namespaces/default/events";
    world.check("POST", events, event("a", "x"), (201, "")).await;
    let one = "limit reached on type SourceAndObject for key cPoddefaultx";
    world.check("POST", events, event("b", "x"), (429, one)).await;
    let answer = world.send("POST", events, &event("c", "y")).await;
    answer.is((429, "limit reached on type Namespace for key default"), "the bucket of the namespace is empty");
    world.check("POST", &format!("{events}?dryRun=All"), event("d", "z"), (201, "")).await;
}

#[tokio::test]
async fn there_are_no_initializers_unless_they_are_asked_for() {
    let world = World::new(&[]).await;
    let map = json!({"metadata": {"name": "m", "initializers": {"pending": [{"name": "a.example.com"}]}}});
    let maps = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    let unknown = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
                   \"metadata.initializers\"";
    world.check("POST", maps, map, (400, unknown)).await;
    let configurations = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
    assert_eq!(world.send("GET", configurations, &Value::Null).await.code, 404);
    let (store, _dir) = crate::fixture::store().await;
    let admission = AdmissionOptions::new(&names(&["Initializers"]), &[]).unwrap();
    let settings = ferry_apiserver::ServerOptions { admission, ..Default::default() };
    let error = ferry_apiserver::Server::with_options(crate::fixture::config(store), settings)
        .await
        .err()
        .map(|it| it.to_string());
    assert!(error.unwrap_or_default().contains("there are no initializers without --enable-initializers"));
}
