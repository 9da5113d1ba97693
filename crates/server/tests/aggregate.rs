//! Aggregated API servers: a small real server behind an `APIService`, reached over TLS like any other.

mod fixture;
#[path = "aggregate/remote.rs"]
mod remote;
mod wire;

use std::time::Duration;

use ferry_server::{
    Aggregation, Audit, AuditMode, AuditPolicy, BatchSettings, ClientCertificate, LogSettings, Mode, Settings,
    Truncation, UserTable,
};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use remote::{DOCUMENT, GROUP, Remote, THINGS, VERSION};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use store::{Guard, Write};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use wire::{Call, Client, JSON, Wire};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const APIS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.remote.example.com";

/// An API server, and another one that it leads to.
struct World {
    wire: Wire,
    admin: Client,
    remote: Remote,
}

impl World {
    /// With a remote that nobody knows of yet.
    async fn new() -> Self {
        Self::audited(Audit::default()).await
    }

    /// With word of what is done.
    async fn audited(audit: Audit) -> Self {
        let remote = Remote::start().await;
        let (chain, key) = remote.certificate();
        let certificate = Some(ClientCertificate::from_pem(&chain, &key).unwrap());
        let mut settings = Settings {
            admission: fixture::without_accounts(),
            audit,
            aggregation: Aggregation { certificate, ..Aggregation::default() },
            ..Settings::default()
        };
        settings.authentication.tokens = Some(UserTable::of_tokens("t-1,ted,7,\"ops,dev\"\n").unwrap());
        settings.authorization.modes = vec![Mode::Rbac];
        let wire = Wire::start_with(settings).await;
        let admin = wire.client().await;
        Self { wire, admin, remote }
    }

    /// With a remote that is available.
    async fn ready() -> Self {
        Self::new().await.registered().await
    }

    async fn registered(self) -> Self {
        self.service().await;
        self.slice().await;
        self.api(json!({})).await;
        self.until("Passed", "all checks passed").await;
        self
    }

    async fn post(&self, path: &str, object: Value) -> Value {
        let (code, answer) = self.admin.post(path, &object).await;
        assert_eq!(code, 201, "{answer}");
        answer
    }

    async fn service(&self) {
        let spec = json!({"clusterIP": "None", "ports": [{"name": "https", "port": 443}]});
        self.post(SERVICES, json!({"metadata": {"name": "remote"}, "spec": spec})).await;
    }

    /// Loopback is not an address that a slice may have, so it does not come through the API.
    async fn slice(&self) {
        let slice = format!(
            r#"{{"metadata":{{"name":"remote-1","namespace":"default","labels":{{"kubernetes.io/service-name":"remote"}}}},"addressType":"IPv4","endpoints":[{{"addresses":["127.0.0.1"],"conditions":{{"ready":true}}}}],"ports":[{{"name":"https","port":{},"protocol":"TCP"}}],"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice"}}"#,
            self.remote.port
        );
        let key = "/registry/discovery.k8s.io/endpointslices/default/remote-1".into();
        let write = Write { key, guard: Guard::Absent, value: Some(slice.into()), ttl: None };
        self.wire.store.write(write).await.unwrap();
    }

    async fn api(&self, more: Value) {
        let mut spec = json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 20,
            "caBundle": self.remote.bundle(), "service": {"namespace": "default", "name": "remote"}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.post(APIS, json!({"metadata": {"name": NAME}, "spec": spec})).await;
    }

    /// Waits until the condition says so.
    async fn until(&self, reason: &str, message: &str) -> Value {
        let path = format!("{APIS}?watch=1&fieldSelector=metadata.name={NAME}");
        let call = Call { method: Method::GET, path: &path, content_type: JSON, accept: JSON, body: "".into() };
        let mut events = self.admin.open(call).await.unwrap().into_body();
        let mut last = Value::Null;
        let found = async {
            let mut text = Vec::new();
            while let Some(Ok(frame)) = events.frame().await {
                text.extend_from_slice(frame.data_ref().unwrap());
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).unwrap();
                    last = event["object"]["status"]["conditions"][0].clone();
                    let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
                    if text("reason") == reason && text("message").contains(message) {
                        return;
                    }
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(30), found).await;
        assert!(found.is_ok(), "{reason} {message}: the condition is {last}");
        last
    }

    /// The text of an answer.
    async fn text(&self, path: &str) -> (u16, String) {
        let call = Call { method: Method::GET, path, content_type: JSON, accept: JSON, body: "".into() };
        let answer = self.admin.open(call).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}

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
    let log = LogSettings {
        path: file.clone(),
        mode: AuditMode::Blocking,
        batch: BatchSettings { buffer: 100, size: 1, wait: Duration::ZERO, throttle: None },
        truncation: Truncation::default(),
        max_size: 0,
        max_backups: 0,
        max_age: Duration::ZERO,
        compress: false,
    };
    let audit = Audit { policy: Some(AuditPolicy::parse(policy).unwrap()), log: Some(log), webhook: None };
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
    let insecure = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    let path = format!("{APIS}/{NAME}");
    let (code, answer) = world.admin.send(Method::PATCH, &path, "application/merge-patch+json", &insecure).await;
    assert_eq!(code, 200, "{answer}");
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
    let path = format!("{APIS}/{NAME}");
    let service =
        json!({"spec": {"caBundle": world.remote.bundle(), "service": {"namespace": "default", "name": "remote"}}});
    world.admin.send(Method::PATCH, &path, "application/merge-patch+json", &service).await;
    world.until("Passed", "all checks passed").await;
    assert_eq!(world.text(THINGS).await.0, 200);
    let back = json!({"spec": {"caBundle": null, "service": null}});
    world.admin.send(Method::PATCH, &path, "application/merge-patch+json", &back).await;
    world.until("Local", "Local APIServices are always available").await;
    assert_eq!(world.text(THINGS).await.0, 404);
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

async fn page(world: &World, path: &str, accept: &str) -> (String, bytes::Bytes) {
    let call = Call { method: Method::GET, path, content_type: JSON, accept, body: "".into() };
    let answer = world.admin.open(call).await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    let tag = answer.headers().get(header::ETAG).map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
    (tag, answer.into_body().collect().await.unwrap().to_bytes())
}

/// The names of the groups of a document, and what it says of the remote one.
async fn aggregated(world: &World) -> (String, Vec<String>, Value) {
    let (tag, bytes) = page(world, "/apis", V2).await;
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let items = list["items"].as_array().unwrap();
    let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let ours = items.iter().find(|item| item["metadata"]["name"] == GROUP).cloned().unwrap_or_default();
    (tag, names, ours["versions"].clone())
}

async fn groups(world: &World) -> Vec<String> {
    let list = world.admin.get("/apis").await.1;
    list["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn discovery_tells_of_everybody() {
    let world = World::new().await;
    let (first, names, none) = aggregated(&world).await;
    let plain = groups(&world).await;
    assert_eq!((&none, plain.contains(&GROUP.to_owned())), (&Value::Null, false));
    world.service().await;
    world.slice().await;
    world.api(json!({"groupPriorityMinimum": 17350})).await;
    world.until("Passed", "all checks passed").await;

    let (tag, merged, versions) = aggregated(&world).await;
    assert_ne!(first, tag, "who has the old document is told");
    assert_eq!((&versions[0]["version"], &versions[0]["freshness"]), (&json!("v1"), &json!("Current")));
    assert_eq!(versions[0]["resources"][0]["resource"], "things");
    let with_ours = |before: &[String]| {
        let mut names = before.to_vec();
        names.insert(before.iter().position(|name| name == "certificates.k8s.io").unwrap(), GROUP.to_owned());
        names
    };
    assert_eq!(merged, with_ours(&names), "its priority says where it is; the others stay where they were");
    assert_eq!(groups(&world).await, with_ours(&plain));
    let group = world.admin.get(&format!("/apis/{GROUP}")).await.1;
    let version = json!({"groupVersion": "remote.example.com/v1", "version": "v1"});
    let want = json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version});
    assert_eq!(group, want);
    let root = world.admin.get("/").await.1;
    assert!(root["paths"].as_array().unwrap().contains(&json!(VERSION)));

    world.remote.stop();
    let patch = json!({"metadata": {"labels": {"look": "again"}}});
    world.admin.send(Method::PATCH, &format!("{APIS}/{NAME}"), "application/merge-patch+json", &patch).await;
    world.until("FailedDiscoveryCheck", "").await;
    let (_, merged, versions) = aggregated(&world).await;
    assert_eq!((merged, versions), (with_ours(&names), json!([{"version": "v1", "freshness": "Stale"}])));
    world.admin.delete(&format!("{APIS}/{NAME}")).await;
    assert_eq!((aggregated(&world).await.0, groups(&world).await), (first, plain));
}

#[tokio::test]
async fn descriptions_are_one() {
    let world = World::new().await;
    let (first, _) = page(&world, "/openapi/v2", JSON).await;
    world.service().await;
    world.slice().await;
    world.api(json!({})).await;
    world.until("Passed", "all checks passed").await;
    let (tag, bytes) = loop {
        let (tag, bytes) = page(&world, "/openapi/v2", JSON).await;
        if tag != first {
            break (tag, bytes);
        }
        // It is asked for once the server is known to be there.
        tokio::task::yield_now().await;
    };
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let renamed = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2";
    let thing = &document["definitions"]["com.example.Thing"];
    assert_eq!(thing["properties"]["metadata"]["$ref"], format!("#/definitions/{renamed}"));
    assert_eq!(document["definitions"][renamed]["description"], "something else");
    assert!(document["paths"].get("/apis/remote.example.com/v1/things").is_some());
    assert!(document["paths"].get("/apis/apps/v1/things").is_none(), "nobody describes what is not theirs");
    assert!(document["definitions"].get("com.example.Lost").is_none());
    assert!(document["paths"].get("/api/v1/pods").is_some());
    let (_, protobuf) = page(&world, "/openapi/v2", PROTOBUF).await;
    let has = |text: &[u8]| protobuf.windows(text.len()).any(|part| part == text);
    assert!(has(renamed.as_bytes()) && has(b"/api/v1/pods"));
    assert_eq!(page(&world, "/openapi/v2", JSON).await.0, tag);

    let index = loop {
        let index = world.admin.get("/openapi/v3").await.1;
        if index["paths"].get(DOCUMENT).is_some() {
            break index;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(index["paths"][DOCUMENT]["serverRelativeURL"], "/openapi/v3/apis/remote.example.com/v1?hash=1");
    assert_ne!(index["paths"]["version"]["serverRelativeURL"], "/openapi/v3/version?hash=0", "each for its own");
    assert_eq!(
        world.admin.get(&format!("/openapi/v3/{DOCUMENT}")).await,
        (200, json!({"openapi": "3.0.0", "from": "remote"}))
    );
    let group = "apis/remote.example.com";
    assert_eq!(index["paths"][group]["serverRelativeURL"], "/openapi/v3/apis/remote.example.com?hash=2");
    assert_eq!(world.admin.get(&format!("/openapi/v3/{group}")).await.0, 404, "it is asked, and has none");
    world.remote.last(&format!("/openapi/v3/{group}"));
    assert_eq!(world.admin.get("/openapi/v3/apis/apps/v1").await.0, 200);
}

#[tokio::test]
async fn custom_groups_register_themselves() {
    let world = World::new().await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version =
        |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v1", "schema": schema});
    let names = json!({"plural": "crons", "singular": "cron", "kind": "Cron"});
    let definition = json!({"metadata": {"name": "crons.custom.example.com"}, "spec": {"group": "custom.example.com",
        "scope": "Namespaced", "names": names, "versions": [version("v1", true), version("v2", false)]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.post(definitions, definition).await;
    let path = format!("{APIS}/v1.custom.example.com");
    let there = async |want: u16| {
        let waited = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                let (code, object) = world.admin.get(&path).await;
                if code == want {
                    return object;
                }
                tokio::task::yield_now().await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{path} does not become {want}"))
    };
    let object = there(200).await;
    let spec =
        json!({"group": "custom.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(object["spec"], spec);
    assert_eq!(object["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(object["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(world.admin.get(&format!("{APIS}/v2.custom.example.com")).await.0, 404);
    world.admin.delete(&format!("{definitions}/crons.custom.example.com")).await;
    there(404).await;
}
