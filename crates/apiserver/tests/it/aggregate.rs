//! Aggregated API servers: a small real server behind an `APIService`, reached over TLS like any other.

mod documents;
mod remote;
mod world;

use crate::fixture;
use crate::wire::{Call, JSON};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use remote::{GROUP, Remote, THINGS, VERSION};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use world::{APIS, NAME, SERVICES, World};

#[tokio::test]
async fn requests_are_passed_on_with_who_asks_and_nothing_that_shows_it() {
    let world = World::ready().await;
    let thing = json!({"kind": "Thing", "metadata": {"name": "a"}, "spec": {"of": "the other server"}});
    let admin = world.admin.with("x-remote-user", "somebody").with("x-remote-group", "system:nodes");
    let admin = admin.with("x-remote-extra-scopes", "all").with("x-custom", "stays");
    assert_eq!(admin.post(THINGS, &thing).await, (201, thing));
    let seen = world.remote.last(THINGS);
    assert!(seen.certificate, "the other server sees who calls");
    assert_eq!(seen.method, Method::POST);
    assert_eq!(seen.all("x-remote-user"), ["admin"]);
    assert_eq!(seen.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!((seen.all("x-remote-extra-scopes").len(), seen.all("x-custom")), (0, vec!["stays"]));
    assert_eq!(seen.all("x-forwarded-uri"), [THINGS]);
    assert_eq!(seen.all("host"), [format!("127.0.0.1:{}", world.remote.port)]);
    assert_eq!(seen.all("audit-id").len(), 1);

    let (code, list) = world.admin.get(&format!("{THINGS}?limit=5&labelSelector=a%3Db")).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ThingList")));
    world.remote.last(&format!("{THINGS}?limit=5&labelSelector=a%3Db"));

    let call =
        Call { method: Method::GET, path: &format!("{THINGS}/odd"), content_type: JSON, accept: JSON, body: "".into() };
    let odd = world.admin.call(call).await.unwrap();
    assert_eq!((odd.status, odd.headers["x-from"].to_str().unwrap()), (418, "remote"));
    assert_eq!(odd.body["message"], "I am a teapot");
    let refused = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!(world.text(&format!("{THINGS}/away")).await, (502, refused.to_owned()));
    assert_eq!(world.admin.get(VERSION).await.1["groupVersion"], "remote.example.com/v1");
}

#[tokio::test]
async fn whoever_may_not_is_not_passed_on() {
    let world = World::ready().await;
    let ted = world.wire.stranger().await.with("authorization", "Bearer t-1");
    let (code, answer) = ted.get(THINGS).await;
    let want = "things.remote.example.com is forbidden: User \"ted\" cannot list resource \"things\" in API group \
                \"remote.example.com\" in the namespace \"default\"";
    assert_eq!((code, answer["message"].as_str()), (403, Some(want)));
    let rule = json!({"apiGroups": [GROUP], "resources": ["things"], "verbs": ["list"]});
    world
        .post("/apis/rbac.authorization.k8s.io/v1/clusterroles", json!({"metadata": {"name": "r"}, "rules": [rule]}))
        .await;
    let subject = json!({"kind": "User", "name": "ted", "apiGroup": "rbac.authorization.k8s.io"});
    let role = json!({"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"});
    let binding = json!({"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role});
    world.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let ted = world.wire.stranger().await.with("authorization", "Bearer t-1");
    assert_eq!(ted.get(THINGS).await.0, 200);
    let seen = world.remote.last(THINGS);
    assert_eq!((seen.all("x-remote-user"), seen.all("x-remote-uid")), (vec!["ted"], vec!["7"]));
    assert_eq!(seen.all("x-remote-group"), ["ops", "dev", "system:authenticated"]);
    assert!(seen.all("authorization").is_empty(), "a token is for this server only");
    assert_eq!(ted.post(THINGS, &json!({})).await.0, 403);

    let other = world.admin.with("impersonate-user", "eve").with("impersonate-group", "system:masters");
    assert_eq!(other.get(THINGS).await.0, 200);
    let seen = world.remote.last(THINGS);
    assert_eq!((seen.all("x-remote-user"), seen.all("impersonate-user").len()), (vec!["eve"], 0));
}

#[tokio::test]
async fn watches_are_streams_even_where_every_answer_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse, \
                  resources: [{group: remote.example.com}]}]}";
    let audit = fixture::audit_log(policy, &file);
    let world = World::audited(audit).await.registered().await;
    let path = format!("{THINGS}?watch=1");
    let call = Call { method: Method::GET, path: &path, content_type: JSON, accept: JSON, body: "".into() };
    let mut events = world.admin.open(call).await.unwrap().into_body();
    for line in ["first", "second"] {
        world.remote.lines.send(line.to_owned()).unwrap();
        let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, format!("{line}\n"), "each line comes when it is written");
    }
    world.admin.get(THINGS).await;
    let told: Vec<Value> =
        std::fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let watch = told.iter().find(|event| event["stage"] == "ResponseStarted").unwrap();
    assert_eq!((&watch["verb"], &watch["objectRef"]["resource"]), (&json!("watch"), &json!("things")));
    let list = told.iter().find(|event| event["verb"] == "list" && event["stage"] == "ResponseComplete").unwrap();
    assert_eq!((&list["responseStatus"]["code"], list.get("responseObject")), (&json!(200), None));
}

#[tokio::test]
async fn upgrades_are_joined() {
    let world = World::ready().await;
    let stream = TcpStream::connect(("127.0.0.1", world.wire.port)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(world.wire.tls(&["http/1.1"])).connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(format!("{THINGS}/stream"))
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "echo")
        .header("x-remote-user", "somebody")
        .body(Full::<bytes::Bytes>::default());
    let mut answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"HELLO");
    let seen = world.remote.last(&format!("{THINGS}/stream"));
    assert_eq!((seen.all("x-remote-user"), seen.certificate), (vec!["admin"], true));
}

#[tokio::test]
async fn conditions_say_why_it_is_not_there() {
    let world = World::new().await;
    world.api(json!({})).await;
    let unavailable = (503, "service unavailable\n".to_owned());
    world.until("ServiceNotFound", "service/remote in \"default\" is not present").await;
    assert_eq!(world.text(THINGS).await, unavailable);
    world.post(SERVICES, json!({"metadata": {"name": "remote"}, "spec": {"ports": [{"port": 80}]}})).await;
    world.until("ServicePortError", "service/remote in \"default\" is not listening on port 443").await;
    world.admin.delete(&format!("{SERVICES}/remote")).await;
    world.service().await;
    world.until("EndpointsNotFound", "cannot find endpointslices for service/remote in \"default\"").await;
    let slice = json!({"metadata": {"name": "none", "labels": {"kubernetes.io/service-name": "remote"}}, "addressType": "IPv4",
        "endpoints": [], "ports": [{"name": "https", "port": 1}]});
    world.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    let missing = "endpointslices for service/remote in \"default\" have no addresses with port name \"https\"";
    world.until("MissingEndpoints", missing).await;
    assert_eq!(world.text(THINGS).await, unavailable);
    world.slice().await;
    world.until("Passed", "all checks passed").await;
    assert_eq!(world.text(THINGS).await.0, 200);
}

#[tokio::test]
async fn a_server_that_goes_away_comes_back() {
    let world = World::ready().await;
    let since = world.until("Passed", "").await["lastTransitionTime"].clone();
    world.remote.stop();
    // Until it is known to be away, the way to it fails.
    let (code, text) = world.text(THINGS).await;
    assert_eq!(code, 503, "{text}");
    // Anything new about it has it looked at again.
    let patch = json!({"metadata": {"labels": {"look": "again"}}});
    world.admin.send(Method::PATCH, &format!("{APIS}/{NAME}"), "application/merge-patch+json", &patch).await;
    let url = format!("https://127.0.0.1:{}{VERSION}", world.remote.port);
    let why = format!("failing or missing response from {url}: Get \"{url}\": dial tcp 127.0.0.1:");
    let condition = world.until("FailedDiscoveryCheck", &why).await;
    assert_eq!(condition["status"], "False");
    let metrics = world.text("/metrics").await.1;
    let gauge = |name: &str, value: u8| format!("aggregator_unavailable_apiservice{{name=\"{name}\"}} {value}\n");
    assert!(metrics.contains(&gauge(NAME, 1)) && metrics.contains(&gauge("v1.apps", 0)), "{metrics}");
    assert_eq!(world.text(THINGS).await, (503, "service unavailable\n".to_owned()));
    world.remote.come_back().await;
    let condition = world.until("Passed", "all checks passed").await;
    assert!(condition["lastTransitionTime"].as_str() >= since.as_str());
    assert_eq!(world.text(THINGS).await.0, 200);
}

#[tokio::test]
async fn whom_nobody_vouches_for_is_not_trusted() {
    let world = World::new().await;
    world.service().await;
    world.slice().await;
    let other = Remote::start().await;
    world.api(json!({"caBundle": other.bundle()})).await;
    world
        .until(
            "FailedDiscoveryCheck",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        )
        .await;
    world.change(NAME, json!({"caBundle": null, "insecureSkipTLSVerify": true})).await;
    world.until("Passed", "all checks passed").await;
    assert_eq!(world.text(THINGS).await.0, 200);
}

#[tokio::test]
async fn what_is_answered_here_is_available_and_can_be_given_away() {
    let world = World::new().await;
    world.service().await;
    world.slice().await;
    world
        .post(
            APIS,
            json!({"metadata": {"name": NAME}, "spec": {"group": GROUP, "version": "v1",
        "groupPriorityMinimum": 2000, "versionPriority": 20}}),
        )
        .await;
    world.until("Local", "Local APIServices are always available").await;
    assert_eq!(world.text(THINGS).await, (404, "404 page not found\n".to_owned()));
    world.give(NAME).await;
    world.until("Passed", "all checks passed").await;
    assert_eq!(world.text(THINGS).await.0, 200);
    world.take_back(NAME).await;
    world.until("Local", "Local APIServices are always available").await;
    assert_eq!(world.text(THINGS).await.0, 404);
}

#[tokio::test]
async fn a_built_in_group_can_be_given_away_but_not_the_one_that_gives() {
    let world = World::new().await;
    world.service().await;
    world.slice().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    assert_eq!(world.admin.get(jobs).await.1["kind"], "JobList");
    world.give("v1.batch").await;
    // The other server has no such version, so it is not available: nobody answers.
    world.until_of("v1.batch", "FailedDiscoveryCheck", "/apis/batch/v1: 404").await;
    assert_eq!(world.text(jobs).await, (503, "service unavailable\n".to_owned()));
    let own = json!({"metadata": {"name": "v1.apiregistration.k8s.io"}, "spec": {"group": "apiregistration.k8s.io",
        "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 20, "insecureSkipTLSVerify": true,
        "service": {"namespace": "default", "name": "remote"}}});
    world.admin.post(APIS, &own).await;
    assert_eq!(world.admin.get(APIS).await.1["kind"], "APIServiceList");
    world.take_back("v1.batch").await;
    assert_eq!(world.admin.get(jobs).await.1["kind"], "JobList");
}
