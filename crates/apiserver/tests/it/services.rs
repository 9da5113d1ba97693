//! Services get addresses and ports that nobody else has, keep them, and give them back.

use crate::fixture;
use std::collections::HashSet;

use bytes::Bytes;
use ferry_apiserver::{LocalService, ServerOptions};
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

async fn send(server: &LocalService, method: &str, path: &str, body: Value) -> (u16, Value) {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let response = server.clone().oneshot(request.body(Full::new(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}]);
    spec["selector"] = json!({"a": "b"});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

async fn addresses(server: &LocalService) -> HashSet<String> {
    let (_, list) = send(server, "GET", ADDRESSES, Value::Null).await;
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().into()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_get_different_addresses_and_ports() {
    let (server, _dir) = fixture::server().await;
    let create = |at: usize| {
        let server = server.clone();
        async move { send(&server, "POST", SERVICES, service(&format!("s{at}"), json!({"type": "NodePort"}))).await }
    };
    let created = join_all((0..64).map(create)).await;
    let (mut ips, mut ports) = (HashSet::new(), HashSet::new());
    for (code, object) in created {
        assert_eq!(code, 201, "{object}");
        ips.insert(object["spec"]["clusterIP"].as_str().unwrap().to_owned());
        let list = object["spec"]["ports"].as_array().unwrap();
        assert_eq!(list[0]["nodePort"], list[1]["nodePort"], "ports of one number share");
        ports.insert(list[0]["nodePort"].as_i64().unwrap());
    }
    assert_eq!((ips.len(), ports.len()), (64, 64));
    let recorded = addresses(&server).await;
    assert!(ips.iter().all(|ip| recorded.contains(ip)));
    join_all((0..64).map(|at| {
        let server = server.clone();
        async move { send(&server, "DELETE", &format!("{SERVICES}/s{at}"), Value::Null).await }
    }))
    .await;
    assert_eq!(
        addresses(&server).await,
        HashSet::from(["10.96.0.1".to_owned()]),
        "only the service kubernetes is left"
    );
    let taken = ports.iter().next().unwrap();
    let mut again = service("again", json!({"type": "NodePort"}));
    again["spec"]["ports"][0]["nodePort"] = json!(taken);
    assert_eq!(send(&server, "POST", SERVICES, again).await.0, 201, "released ports can be had again");
}

#[tokio::test]
async fn types_take_and_give_back() {
    let (server, _dir) = fixture::server().await;
    let path = format!("{SERVICES}/s");
    let (_, made) = send(&server, "POST", SERVICES, service("s", json!({"type": "ClusterIP"}))).await;
    let ip = made["spec"]["clusterIP"].clone();
    assert_eq!((&made["spec"]["clusterIPs"], &made["spec"]["ipFamilies"]), (&json!([ip]), &json!(["IPv4"])));
    assert_eq!(made["spec"]["ipFamilyPolicy"], "SingleStack");

    let balanced = json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}});
    let (code, object) = send(&server, "PATCH", &path, balanced).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(object["spec"]["clusterIP"], ip);
    let (port, health) =
        (object["spec"]["ports"][0]["nodePort"].as_i64(), object["spec"]["healthCheckNodePort"].as_i64());
    assert!(port.unwrap() >= 30000 && health.unwrap() >= 30000 && port != health, "{object}");

    let (code, object) = send(&server, "PATCH", &path, json!({"spec": {"type": "ClusterIP"}})).await;
    assert_eq!(code, 200, "{object}");
    assert!(
        object["spec"]["ports"][0].get("nodePort").is_none() && object["spec"].get("healthCheckNodePort").is_none()
    );

    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
    let (code, object) = send(&server, "PATCH", &path, external).await;
    assert_eq!(code, 200, "{object}");
    assert!(object["spec"].get("clusterIP").is_none(), "{object}");
    assert!(!addresses(&server).await.contains(ip.as_str().unwrap()));
}

#[tokio::test]
async fn what_is_taken_or_out_of_range_is_refused() {
    let (server, _dir) = fixture::server().await;
    let (code, made) = send(&server, "POST", SERVICES, service("a", json!({"clusterIP": "10.96.0.77"}))).await;
    assert_eq!((code, &made["spec"]["clusterIP"]), (201, &json!("10.96.0.77")));
    let (code, status) = send(&server, "POST", SERVICES, service("b", json!({"clusterIP": "10.96.0.77"}))).await;
    assert_eq!(code, 422);
    let want = "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: \
                provided IP is already allocated";
    assert_eq!(status["message"], want);
    let (_, status) = send(&server, "POST", SERVICES, service("b", json!({"clusterIP": "10.97.0.1"}))).await;
    assert!(status["message"].as_str().unwrap().ends_with("the provided network does not match the current range"));
    let mut port = service("b", json!({"type": "NodePort"}));
    port["spec"]["ports"][0]["nodePort"] = json!(80);
    let (_, status) = send(&server, "POST", SERVICES, port).await;
    let want = "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The \
                range of valid ports is 30000-32767";
    assert_eq!(status["message"], want);
    assert_eq!(addresses(&server).await.len(), 2, "what failed has given back what it took");
    let (_, status) =
        send(&server, "POST", SERVICES, service("c", json!({"ipFamilyPolicy": "RequireDualStack"}))).await;
    let want = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services";
    assert!(status["message"].as_str().unwrap().contains(want), "{status}");
}

#[tokio::test]
async fn two_families_come_and_go() {
    let networks = ["10.96.0.0/16", "fd00:96::/112"].map(|network| network.parse().unwrap());
    let settings = ServerOptions { service_networks: networks.into(), ..Default::default() };
    let (server, _dir) = fixture::server_with(settings).await;
    let path = format!("{SERVICES}/s");
    let (code, made) =
        send(&server, "POST", SERVICES, service("s", json!({"ipFamilyPolicy": "PreferDualStack"}))).await;
    assert_eq!(code, 201, "{made}");
    let ips: Vec<&str> = made["spec"]["clusterIPs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(ips[0].starts_with("10.96.") && ips[1].starts_with("fd00:96::"), "{ips:?}");
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let (code, object) = send(&server, "PATCH", &path, single).await;
    assert_eq!((code, &object["spec"]["clusterIPs"]), (200, &json!([ips[0]])));
    assert!(!addresses(&server).await.contains(ips[1]));
    let require = json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}});
    let (code, object) = send(&server, "PATCH", &path, require).await;
    assert_eq!((code, object["spec"]["clusterIPs"].as_array().unwrap().len()), (200, 2));
    let (code, headless) = send(&server, "POST", SERVICES, service("h", json!({"clusterIP": "None"}))).await;
    assert_eq!((code, &headless["spec"]["clusterIPs"]), (201, &json!(["None"])));
}

#[tokio::test]
async fn dry_runs_take_nothing() {
    let (server, _dir) = fixture::server().await;
    let path = format!("{SERVICES}?dryRun=All");
    let (code, object) = send(&server, "POST", &path, service("s", json!({"type": "NodePort"}))).await;
    assert_eq!(code, 201, "{object}");
    assert_eq!(addresses(&server).await.len(), 1);
}
