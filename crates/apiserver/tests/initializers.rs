//! Initializers: what they hide, who may act, and what a creation waits for. The tables have them in this process.

#[path = "it/fixture/mod.rs"]
mod fixture;

use std::time::Duration;

use bytes::Bytes;
use ferry_apiserver::{AuthorizationMode, AuthorizationOptions, LocalService, Server, ServerOptions, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALL: &str = "includeUninitialized=true";

/// A server with initializers, on which roles count.
struct World {
    server: Server,
    admin: LocalService,
    _dir: tempfile::TempDir,
}

type Answer = (u16, Value);

impl World {
    /// Creations wait so long.
    async fn new(patience: Duration) -> Self {
        let (store, dir) = fixture::store().await;
        let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] };
        let admission = fixture::without_accounts();
        let settings =
            ServerOptions { initializers: Some(patience), authorization, admission, ..ServerOptions::default() };
        let server = Server::with_options(fixture::config(store), settings).await.unwrap();
        Self { admin: server.local_service(fixture::admin()), server, _dir: dir }
    }

    /// With initializers for config maps, in this order.
    async fn of_maps(patience: Duration, names: &[&str]) -> Self {
        let world = Self::new(patience).await;
        for (at, name) in names.iter().enumerate() {
            world.configure(&format!("c{at}"), json!([{"name": name, "rules": [rule("configmaps")]}])).await;
        }
        world
    }

    async fn configure(&self, name: &str, initializers: Value) {
        let body = json!({"metadata": {"name": name}, "initializers": initializers});
        let (code, answer) = self.send("POST", CONFIGURATIONS, body).await;
        assert_eq!(code, 201, "{answer}");
        // Whoever has read a list is followed by the server's own views.
        self.send("GET", CONFIGURATIONS, Value::Null).await;
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        send(&self.admin, method, path, body).await
    }

    async fn send_as(&self, user: &str, method: &str, path: &str, body: Value) -> Answer {
        let user = User { name: user.into(), groups: vec!["system:authenticated".into()], ..User::default() };
        send(&self.server.local_service(user), method, path, body).await
    }

    /// A right for a user: to initialize config maps, and as some initializers.
    async fn grant(&self, user: &str, names: &[&str]) {
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "update", "patch", "create", "initialize"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["initializers"], "resourceNames": names, "verbs": ["initialize"]},
        ]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": user}, "rules": rules});
        assert_eq!(self.send("POST", &format!("{rbac}/clusterroles"), role).await.0, 201);
        let binding = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}});
        assert_eq!(self.send("POST", &format!("{rbac}/clusterrolebindings"), binding).await.0, 201);
        self.send("GET", &format!("{rbac}/clusterrolebindings"), Value::Null).await;
    }

    /// Creates a config map without waiting for its initializers.
    async fn begin(&self, name: &str) -> Value {
        let (code, map) = self.send("POST", &format!("{MAPS}?{ALL}"), json!({"metadata": {"name": name}})).await;
        assert_eq!(code, 201, "{map}");
        map
    }

    async fn names(&self, query: &str) -> Vec<String> {
        let (_, list) = self.send("GET", &format!("{MAPS}?{query}"), Value::Null).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

async fn send(service: &LocalService, method: &str, path: &str, body: Value) -> Answer {
    let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    let body: Bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let response = service.clone().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn rule(resource: &str) -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]})
}

/// A patch that takes names from the list.
fn done(names: &[&str]) -> Value {
    let entries: Vec<Value> = names.iter().map(|name| json!({"$patch": "delete", "name": name})).collect();
    json!({"metadata": {"initializers": {"pending": entries}}})
}

fn said(answer: &Answer) -> (u16, &str) {
    (answer.0, answer.1["message"].as_str().unwrap_or_default())
}

fn pending(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["initializers"]["pending"].as_array().into_iter().flatten();
    list.map(|entry| entry["name"].as_str().unwrap_or_default()).collect()
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn what_is_pending_is_seen_by_who_asks_for_it() {
    let world = World::of_maps(LONG, &["a.example.com"]).await;
    let map = world.begin("m").await;
    assert_eq!(pending(&map), ["a.example.com"]);
    assert!(world.names("").await.is_empty());
    assert_eq!(world.names(ALL).await, ["m"]);
    let one = format!("{MAPS}/m");
    assert_eq!(said(&world.send("GET", &one, Value::Null).await), (404, "configmaps \"m\" not found"));
    assert_eq!(world.send("GET", &format!("{one}?{ALL}"), Value::Null).await.1["metadata"]["name"], "m");
    let again = world.send("POST", MAPS, json!({"metadata": {"name": "m"}})).await;
    assert_eq!(said(&again), (409, "configmaps \"m\" already exists"));
    let (code, _) = world.send("PATCH", &one, done(&["a.example.com"])).await;
    assert_eq!((code, world.names("").await), (200, vec!["m".to_owned()]));
    let (_, map) = world.send("GET", &one, Value::Null).await;
    assert_eq!(map["metadata"].get("initializers"), None);
}

#[tokio::test]
async fn a_watch_begins_with_the_last_initializer() {
    let world = World::of_maps(LONG, &["a.example.com"]).await;
    let after = world.send("GET", MAPS, Value::Null).await.1["metadata"]["resourceVersion"].clone();
    world.begin("m").await;
    world.send("PATCH", &format!("{MAPS}/m"), json!({"data": {"k": "1"}})).await;
    world.send("PATCH", &format!("{MAPS}/m"), done(&["a.example.com"])).await;
    let watch =
        |more: &str| format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={}{more}", after.as_str().unwrap());
    let types = |text: String| -> Vec<String> {
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let read = async |path: String| {
        let response = world.admin.clone().oneshot(Request::get(path).body(Full::new(Bytes::new())).unwrap()).await;
        let bytes = response.unwrap().into_body().collect().await.unwrap().to_bytes();
        types(String::from_utf8(bytes.to_vec()).unwrap())
    };
    assert_eq!(read(watch("")).await, ["ADDED"]);
    assert_eq!(read(watch(&format!("&{ALL}"))).await, ["ADDED", "MODIFIED", "MODIFIED"]);
}

#[tokio::test]
async fn only_the_first_in_line_acts() {
    let world = World::of_maps(LONG, &["z.example.com", "a.example.com"]).await;
    for (user, names) in [("first", ["z.example.com"].as_slice()), ("second", &["a.example.com"])] {
        world.grant(user, names).await;
    }
    let map = world.begin("m").await;
    assert_eq!(pending(&map), ["z.example.com", "a.example.com"], "in the order of the configurations' names");
    let one = format!("{MAPS}/m");
    let change = || json!({"data": {"k": "v"}});
    let not_first = "configmaps \"m\" is forbidden: the initializer \"z.example.com\" is first: ";
    assert_eq!(said(&world.send_as("second", "PATCH", &one, change()).await), (403, not_first));
    assert_eq!(said(&world.send_as("second", "PATCH", &one, done(&["z.example.com"])).await), (403, not_first));
    let nobody = world.send_as("nobody", "PATCH", &one, change()).await;
    assert_eq!(nobody.0, 403);
    assert_eq!(world.send_as("first", "PATCH", &one, change()).await.0, 200);
    let out_of_turn = "ConfigMap \"m\" is invalid: metadata.initializers.pending: Invalid value: [\"z.example.com\"]: only the first \
                       initializer may be removed, and none added";
    assert_eq!(said(&world.send_as("first", "PATCH", &one, done(&["a.example.com"])).await), (422, out_of_turn));
    let everybody = done(&["z.example.com", "a.example.com"]);
    assert_eq!(world.send_as("first", "PATCH", &one, everybody).await.0, 422);
    let (code, map) = world.send_as("first", "PATCH", &one, done(&["z.example.com"])).await;
    assert_eq!((code, pending(&map)), (200, vec!["a.example.com"]));
    assert_eq!(world.send_as("first", "PATCH", &one, change()).await.0, 403, "no longer first");
    assert_eq!(world.send_as("second", "PATCH", &one, done(&["a.example.com"])).await.0, 200);
    assert_eq!(world.send_as("second", "GET", &one, Value::Null).await.1["data"]["k"], "v");
}

#[tokio::test]
async fn the_right_to_write_is_not_the_right_to_initialize() {
    let world = World::of_maps(LONG, &["a.example.com"]).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "patch", "create"]}]);
    world.send("POST", &format!("{rbac}/clusterroles"), json!({"metadata": {"name": "writer"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "writer"}, "subjects": [{"kind": "User", "name": "writer"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}});
    world.send("POST", &format!("{rbac}/clusterrolebindings"), binding).await;
    world.send("GET", &format!("{rbac}/clusterrolebindings"), Value::Null).await;
    world.begin("m").await;
    let denied = "configmaps \"m\" is forbidden: update to uninitialized resource denied: ";
    let change = world.send_as("writer", "PATCH", &format!("{MAPS}/m"), json!({"data": {"k": "v"}})).await;
    assert_eq!(said(&change), (403, denied));
    for list in [json!({"pending": []}), json!({"pending": [{"name": "x.example.com"}]})] {
        let map = json!({"metadata": {"name": "own", "initializers": list}});
        let denied = "configmaps \"own\" is forbidden: create with initializers denied: ";
        assert_eq!(said(&world.send_as("writer", "POST", MAPS, map).await), (403, denied));
    }
}

#[tokio::test]
async fn a_creation_waits_for_initializers() {
    let world = World::of_maps(LONG, &["a.example.com"]).await;
    let create = world.send("POST", MAPS, json!({"metadata": {"name": "m"}}));
    let initialize = async {
        while world.names(ALL).await.is_empty() {
            tokio::task::yield_now().await;
        }
        let mut patch = done(&["a.example.com"]);
        patch["data"] = json!({"k": "v"});
        world.send("PATCH", &format!("{MAPS}/m"), patch).await
    };
    let ((code, map), (patched, _)) = tokio::join!(create, initialize);
    assert_eq!((code, patched, &map["data"]["k"]), (201, 200, &json!("v")), "it is answered as it became: {map}");
}

#[tokio::test]
async fn a_rejected_object_is_gone_with_the_reason() {
    let world = World::of_maps(LONG, &["a.example.com"]).await;
    let create = world.send("POST", MAPS, json!({"metadata": {"name": "m"}}));
    let reject = async {
        while world.names(ALL).await.is_empty() {
            tokio::task::yield_now().await;
        }
        let wrong = json!({"metadata": {"initializers": {"result": {"status": "Success"}}}});
        let answer = world.send("PATCH", &format!("{MAPS}/m"), wrong).await;
        let must = "ConfigMap \"m\" is invalid: metadata.initializers.result.status: Invalid value: \"Success\": must be 'Failure'";
        assert_eq!(said(&answer), (422, must));
        let result = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": "not this one"});
        world.send("PATCH", &format!("{MAPS}/m"), json!({"metadata": {"initializers": {"result": result}}})).await
    };
    let (created, rejected) = tokio::join!(create, reject);
    assert_eq!((said(&created), &created.1["reason"]), ((403, "not this one"), &json!("Forbidden")));
    assert_eq!((rejected.0, world.names(ALL).await.len()), (200, 0));
}

#[tokio::test]
async fn a_dead_initializer_blocks_only_its_own() {
    let world = World::of_maps(SHORT, &["dead.example.com"]).await;
    let late = "Timeout: server has timed out waiting for the initialization of configmaps m";
    let answer = world.send("POST", MAPS, json!({"metadata": {"name": "m"}})).await;
    assert_eq!((said(&answer), &answer.1["reason"]), ((504, late), &json!("Timeout")));
    assert_eq!(world.names(ALL).await, ["m"], "it stays");
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(world.send("POST", secrets, json!({"metadata": {"name": "s"}})).await.0, 201);
    assert_eq!(world.send("DELETE", &format!("{MAPS}/m"), Value::Null).await.0, 200);
    world.begin("n").await;
    assert_eq!(world.send("DELETE", MAPS, Value::Null).await.0, 200);
    assert_eq!(world.names(ALL).await.len(), 0, "a collection is deleted as a whole");
    world.send("DELETE", &format!("{CONFIGURATIONS}/c0"), Value::Null).await;
    world.send("GET", CONFIGURATIONS, Value::Null).await;
    assert_eq!(world.send("POST", MAPS, json!({"metadata": {"name": "free"}})).await.0, 201);
}

#[tokio::test]
async fn pods_are_made_by_their_initializers() {
    let world = World::new(LONG).await;
    world.configure("pods", json!([{"name": "sidecar.example.com", "rules": [rule("pods")]}])).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(world.send("POST", &format!("{pods}?{ALL}"), pod).await.0, 201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let hidden = (404, "pods \"p\" not found");
    assert_eq!(said(&world.send("POST", &format!("{pods}/p/binding"), binding).await), hidden);
    let running = json!({"status": {"phase": "Running"}});
    assert_eq!(said(&world.send("PATCH", &format!("{pods}/p/status"), running.clone()).await), hidden);
    assert_eq!(said(&world.send("GET", &format!("{pods}/p/status"), Value::Null).await), hidden);
    let forbidden = "Pod \"p\" is invalid: status: Forbidden: must not update status when the object is uninitialized";
    assert_eq!(said(&world.send("PATCH", &format!("{pods}/p/status?{ALL}"), running).await), (422, forbidden));
    let mut patch = done(&["sidecar.example.com"]);
    patch["spec"] = json!({"containers": [{"name": "side", "image": "s"}]});
    let (code, pod) = world.send("PATCH", &format!("{pods}/p"), patch).await;
    assert_eq!((code, pod["spec"]["containers"].as_array().map(Vec::len)), (200, Some(2)), "{pod}");
    let mirror = json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let (code, pod) = world.send("POST", pods, mirror).await;
    assert_eq!((code, pending(&pod).len()), (201, 0), "what runs already is not held up: {pod}");
}

#[tokio::test]
async fn configurations_and_lists_are_checked() {
    let world = World::new(LONG).await;
    let check = async |initializers: Value, want: &str| {
        let body = json!({"metadata": {"name": "c"}, "initializers": initializers});
        let answer = world.send("POST", &format!("{CONFIGURATIONS}?dryRun=All"), body).await;
        let text = said(&answer).1;
        assert_eq!(text.split_once(" is invalid: ").map_or(text, |(_, why)| why), want);
    };
    check(json!([{"name": "a.example.com", "rules": [rule("*")]}]), "").await;
    check(json!([{"name": ""}]), "initializers[0].name: Required value").await;
    let segments = "should be a domain with at least three segments separated by dots";
    check(json!([{"name": "a.b"}]), &format!("initializers[0].name: Invalid value: \"a.b\": {segments}")).await;
    let sub = "initializers[0].rules[0].resources[0]: Invalid value: \"pods/log\": must not specify subresources";
    check(json!([{"name": "a.example.com", "rules": [rule("pods/log")]}]), sub).await;
    let given = |list: Value| json!({"metadata": {"name": "m", "initializers": list}});
    let (code, map) = world.send("POST", MAPS, given(json!({"pending": []}))).await;
    assert_eq!((code, map["metadata"].get("initializers")), (201, None), "an empty list is none");
    let answer = world.send("POST", MAPS, given(json!({"pending": [{"name": "short"}]}))).await;
    let why = "ConfigMap \"m\" is invalid: metadata.initializers.pending[0].name: Invalid value: \"short\": ";
    assert_eq!(said(&answer), (422, format!("{why}{segments}").as_str()));
    let late = json!({"metadata": {"initializers": {"pending": [{"name": "a.example.com"}]}}});
    let done = "ConfigMap \"m\" is invalid: metadata.initializers: Invalid value: null: field is immutable once initialization has completed";
    assert_eq!(said(&world.send("PATCH", &format!("{MAPS}/m"), late).await), (422, done));
    let (_, found) = world.send("GET", "/apis/admissionregistration.k8s.io/v1alpha1", Value::Null).await;
    let names: Vec<&Value> = found["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
    assert!(names.contains(&&json!("initializerconfigurations")), "{names:?}");
}
