//! PodSecurity.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, pod, pod_with};

const LABEL: &str = "pod-security.kubernetes.io";

fn labels(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(mode, value)| (format!("{LABEL}/{mode}"), json!(value))).collect()
}

fn good(name: &str) -> Value {
    let context = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}});
    pod_with(name, json!({"securityContext": context}))
}

async fn check(world: &World, level: &str, body: Value, why: &str) {
    let version = if level.contains(':') { level.to_owned() } else { format!("{level}:latest") };
    let namespace = level.replace([':', '.'], "-");
    let refused = format!("pods \"p\" is forbidden: violates PodSecurity {version:?}: {why}");
    let want = if why.is_empty() { (201, "") } else { (403, refused.as_str()) };
    world.check("POST", &format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"), body, want).await;
}

#[tokio::test]
async fn the_baseline_keeps_pods_in_their_containers() {
    let world = World::new(&[]).await;
    world.namespace("baseline", labels(&[("enforce", "baseline")])).await;
    let context = |context: Value| pod_with("p", json!({"securityContext": context}));
    check(&world, "baseline", pod("p", json!({})), "").await;
    check(&world, "baseline", good("p"), "").await;
    let why = "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)";
    check(&world, "baseline", pod("p", json!({"hostNetwork": true, "hostPID": true, "hostIPC": true})), why).await;
    let why = "privileged (container \"c\" must not set securityContext.privileged=true)";
    check(&world, "baseline", context(json!({"privileged": true})), why).await;
    let why = "non-default capabilities (container \"c\" must not include \"BPF\", \"SYS_ADMIN\" in \
               securityContext.capabilities.add)";
    check(&world, "baseline", context(json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN", "BPF"]}})), why).await;
    let volumes =
        json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "hostPath": {"path": "/"}}]});
    check(&world, "baseline", pod("p", volumes), "hostPath volumes (volumes \"a\", \"b\")").await;
    let ports = json!({"ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 443}]});
    check(&world, "baseline", pod_with("p", ports), "hostPort (container \"c\" uses hostPorts 443, 80)").await;
    let probe = json!({"livenessProbe": {"tcpSocket": {"port": 1, "host": "h"}}});
    let why = "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")";
    check(&world, "baseline", pod_with("p", probe), why).await;
    let why = "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set; \
               role may not be set)";
    check(&world, "baseline", context(json!({"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}})), why)
        .await;
    check(&world, "baseline", context(json!({"seLinuxOptions": {"type": "container_engine_t"}})), "").await;
    let profile = json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"}}});
    let why = "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\"), seccompProfile (pod must not \
               set securityContext.seccompProfile.type to \"Unconfined\")";
    check(&world, "baseline", pod("p", profile), why).await;
    let sysctls = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem", "value": "1"}]}});
    check(&world, "baseline", pod("p", sysctls.clone()), "forbidden sysctls (kernel.msgmax)").await;
    world.namespace("baseline-v1-28", labels(&[("enforce", "baseline"), ("enforce-version", "v1.28")])).await;
    check(&world, "baseline:v1.28", pod("p", sysctls), "forbidden sysctls (kernel.msgmax, net.ipv4.tcp_rmem)").await;
    let probe = json!({"livenessProbe": {"tcpSocket": {"port": 1, "host": "h"}}});
    check(&world, "baseline:v1.28", pod_with("p", probe), "").await;
}

#[tokio::test]
async fn the_restricted_level_wants_pods_to_say_so() {
    let world = World::new(&[]).await;
    world.namespace("restricted", labels(&[("enforce", "restricted")])).await;
    check(&world, "restricted", good("p"), "").await;
    let all = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
               unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true \
               (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
               securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    check(&world, "restricted", pod("p", json!({})), all).await;
    let mut body = good("p");
    body["spec"]["containers"][0]["securityContext"]["runAsUser"] = 0.into();
    check(&world, "restricted", body, "runAsUser=0 (container \"c\" must not set runAsUser=0)").await;
    let mut body = good("p");
    body["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] = false.into();
    let why = "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)";
    check(&world, "restricted", body, why).await;
    let mut body = good("p");
    body["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = json!(["CHOWN", "NET_BIND_SERVICE"]);
    let why =
        "unrestricted capabilities (container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)";
    check(&world, "restricted", body, why).await;
    let mut body = good("p");
    body["spec"]["volumes"] =
        json!([{"name": "n", "nfs": {"server": "s", "path": "/"}}, {"name": "h", "hostPath": {"path": "/"}}]);
    let why = "restricted volume types (volumes \"n\", \"h\" use restricted volume types \"hostPath\", \"nfs\")";
    check(&world, "restricted", body, why).await;
    let mut body = good("p");
    let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    body["spec"]["securityContext"] = context;
    let strict = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    body["spec"]["containers"][0]["securityContext"] = strict;
    check(&world, "restricted", body, "").await;
}

#[tokio::test]
async fn warnings_and_namespaces() {
    let world = World::new(&[]).await;
    let warn = labels(&[("warn", "baseline"), ("audit", "restricted"), ("warn-version", "v1.30")]);
    world.namespace("warned", warn).await;
    let host = json!({"hostNetwork": true, "automountServiceAccountToken": false});
    let text = "would violate PodSecurity \"baseline:v1.30\": host namespaces (hostNetwork=true)";
    let answer = world.check("POST", "/api/v1/namespaces/warned/pods", pod("p", host.clone()), (201, "")).await;
    assert_eq!(answer.warnings, [text]);
    let template = pod("x", host)["spec"].clone();
    let set = json!({"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": template}}});
    let answer = world.check("POST", "/apis/apps/v1/namespaces/warned/replicasets", set, (201, "")).await;
    assert_eq!(answer.warnings, [text]);
    let answer = world
        .check("PATCH", "/api/v1/namespaces/warned/pods/p", json!({"metadata": {"labels": {"a": "b"}}}), (200, ""))
        .await;
    assert!(answer.warnings.is_empty());
    let stricter = json!({"metadata": {"labels": labels(&[("enforce", "baseline")])}});
    let answer = world.check("PATCH", "/api/v1/namespaces/warned", stricter, (200, "")).await;
    let mut warnings = answer.warnings;
    warnings.sort();
    let existing =
        "existing pods in namespace \"warned\" violate the new PodSecurity enforce level \"baseline:latest\"";
    assert_eq!(warnings, [existing, "p: host namespaces"]);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let refused =
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    world.check("PATCH", "/api/v1/namespaces/warned/pods/p", image, (403, refused)).await;
    let bad = json!({"metadata": {"name": "bad", "labels": labels(&[("enforce", "none"), ("warn-version", "1.2")])}});
    let invalid = "Namespace \"bad\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"none\": must be \
                   one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \
                   \"1.2\": must be \"latest\" or \"v1.x\"]";
    world.check("POST", "/api/v1/namespaces", bad, (422, invalid)).await;
}

#[tokio::test]
async fn configurations_have_defaults_and_exemptions() {
    let config = json!({"defaults": {"enforce": "restricted", "enforce-version": "v1.29"},
        "exemptions": {"usernames": ["root"], "namespaces": ["free"], "runtimeClasses": ["odd"]}});
    let world = World::with(AdmissionOptions::default().with_plugin_config("PodSecurity", config)).await;
    world.namespace("free", json!({})).await;
    world.create("/apis/node.k8s.io/v1/runtimeclasses", json!({"metadata": {"name": "odd"}, "handler": "h"})).await;
    let host = pod("p", json!({"hostNetwork": true}));
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let answer = world.send("POST", pods, &host).await;
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("pods \"p\" is forbidden: violates PodSecurity \"restricted:v1.29\": host"),
        "{message}"
    );
    world.check("POST", "/api/v1/namespaces/free/pods?dryRun=All", host.clone(), (201, "")).await;
    world.check("POST", pods, pod("p", json!({"runtimeClassName": "odd"})), (201, "")).await;
    assert_eq!(world.send_as("root", &["system:masters"], "POST", pods, &host).await.code, 201);
    let labelled = json!({"metadata": {"labels": labels(&[("enforce", "baseline")])}});
    let answer = world.check("PATCH", "/api/v1/namespaces/free", labelled, (200, "")).await;
    assert!(answer.warnings.is_empty(), "it became looser: {:?}", answer.warnings);
    let bad = AdmissionOptions::default().with_plugin_config("PodSecurity", json!({"defaults": {"audit": "x"}}));
    let (store, _dir) = crate::fixture::store().await;
    let settings = ferry_apiserver::ServerOptions { admission: bad, ..Default::default() };
    let error =
        ferry_apiserver::Server::with_options(crate::fixture::config(store), settings).await.err().unwrap().to_string();
    assert!(
        error.contains("couldn't init admission plugin \"PodSecurity\": defaults.audit: Invalid value: \"x\""),
        "{error}"
    );
}
