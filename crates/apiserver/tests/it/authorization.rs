//! Authorization of requests of several users by the chain of Node and RBAC in a running server.

use crate::fixture;
use bytes::Bytes;
use ferry_apiserver::{AuthorizationMode, AuthorizationOptions, Server, ServerOptions, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

struct World {
    server: Server,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(modes: Vec<AuthorizationMode>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = ServerOptions { authorization: AuthorizationOptions { modes }, ..ServerOptions::default() };
        let world = Self { server: fixture::start(dir.path(), settings).await, _dir: dir };
        let namespace = json!({"metadata": {"name": "a"}});
        assert_eq!(world.ask("root +system:masters", "POST /api/v1/namespaces", namespace).await.0, 201);
        world
    }

    /// `who` is a user name and, after `+`, a group; `what` is method and path.
    async fn ask(&self, who: &str, what: &str, body: Value) -> (u16, Value) {
        let (name, group) = who.split_once(" +").unwrap_or((who, "others"));
        let groups = vec![group.to_owned(), "system:authenticated".to_owned()];
        let user = User { name: name.into(), groups, ..User::default() };
        let (method, path) = what.split_once(' ').unwrap();
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let answer = self.server.local_service(user).oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into()))
    }

    /// Asserts that requests are allowed.
    async fn make(&self, what: &str, body: Value) {
        let (status, answer) = self.ask("root +system:masters", what, body).await;
        assert!((200..300).contains(&status), "{what}: {answer}");
    }

    /// The status, and the message of what was refused.
    async fn check(&self, who: &str, what: &str, body: Value, want: (u16, &str)) {
        let (status, answer) = self.ask(who, what, body).await;
        let message = if status >= 400 { answer["message"].as_str().unwrap_or_default() } else { "" };
        assert_eq!((status, message), want, "{who}: {what}");
    }

    async fn role(&self, path: &str, name: &str, rules: Value) {
        self.make(&format!("POST {RBAC}/{path}"), json!({"metadata": {"name": name}, "rules": rules})).await;
    }

    async fn bind(&self, path: &str, (kind, role): (&str, &str), user: &str) {
        let name = format!("{role}-{user}");
        self.make(&format!("POST {RBAC}/{path}"), binding(&name, (kind, role), user)).await;
        self.settle().await;
    }

    /// The cache hears of a write a moment after it is acknowledged; a list waits for it.
    async fn settle(&self) {
        assert_eq!(self.ask("root +system:masters", "GET /api/v1/namespaces", Value::Null).await.0, 200);
    }
}

fn binding(name: &str, (kind, role): (&str, &str), user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
}

async fn with_roles() -> World {
    let world = World::new(vec![AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    let rbac = ["rbac.authorization.k8s.io"];
    world
        .role("namespaces/a/roles", "reader", json!([rule(&["get", "list"], &[""], &["configmaps", "namespaces"])]))
        .await;
    world.bind("namespaces/a/rolebindings", ("Role", "reader"), "alice").await;
    let named =
        json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"]});
    world.role("namespaces/a/roles", "named", json!([named])).await;
    world.bind("namespaces/a/rolebindings", ("Role", "named"), "alice").await;
    world
        .role(
            "clusterroles",
            "author",
            json!([
                rule(
                    &["create", "update", "patch", "get"],
                    &rbac,
                    &["roles", "clusterroles", "rolebindings", "clusterrolebindings"]
                ),
                rule(&["get", "list"], &[""], &["configmaps"])
            ]),
        )
        .await;
    world.bind("clusterrolebindings", ("ClusterRole", "author"), "bob").await;
    world
}

#[tokio::test]
async fn requests_are_allowed_by_roles_and_refused_in_upstreams_words() {
    let world = with_roles().await;
    let get = async |who: &str, path: &str, want: (u16, &str)| {
        world.check(who, &format!("GET {path}"), Value::Null, want).await;
    };
    get("alice", "/api/v1/namespaces/a/configmaps", (200, "")).await;
    get("alice", "/api/v1/namespaces/a/configmaps/x", (404, "configmaps \"x\" not found")).await;
    get(
        "alice",
        "/api/v1/configmaps",
        (403, "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope"),
    )
    .await;
    get("alice", "/api/v1/namespaces/a", (200, "")).await;
    get(
        "alice",
        "/api/v1/namespaces/default",
        (403, "namespaces \"default\" is forbidden: User \"alice\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"default\""),
    )
    .await;
    get("alice", "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Ds", (200, "")).await;
    get(
        "alice",
        "/api/v1/namespaces/a/secrets",
        (403, "secrets is forbidden: User \"alice\" cannot list resource \"secrets\" in API group \"\" in the namespace \"a\""),
    )
    .await;
    get(
        "alice",
        "/api/v1/namespaces/a/secrets/t",
        (403, "secrets \"t\" is forbidden: User \"alice\" cannot get resource \"secrets\" in API group \"\" in the namespace \"a\""),
    )
    .await;
    get(
        "alice",
        "/api/v1/namespaces/a/nopes/x/y",
        (403, "nopes \"x\" is forbidden: User \"alice\" cannot get resource \"nopes/y\" in API group \"\" in the namespace \"a\""),
    )
    .await;
    get(
        "alice",
        "/apis/nope.io/v1/things",
        (403, "things.nope.io is forbidden: User \"alice\" cannot list resource \"things\" in API group \"nope.io\" at the cluster scope"),
    )
    .await;
    get("alice", "/version", (200, "")).await;
    get("alice", "/logs/x", (403, "forbidden: User \"alice\" cannot get path \"/logs/x\"")).await;
    get(
        "root +system:masters",
        "/api/v1/namespaces/a/nopes",
        (404, "the server could not find the requested resource"),
    )
    .await;
    world
        .check(
            "alice",
            "POST /api/v1/namespaces/a/configmaps",
            json!({"metadata": {"name": "x"}}),
            (403, "configmaps is forbidden: User \"alice\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"a\""),
        )
        .await;
    world
        .check(
            "alice",
            "GET /api/v1/nodes/n/proxy/metrics",
            Value::Null,
            (403, "nodes \"n\" is forbidden: User \"alice\" cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope"),
        )
        .await;
}

#[tokio::test]
async fn a_binding_counts_at_once_and_no_longer_than_it_is_there() {
    let world = with_roles().await;
    let list = "GET /api/v1/namespaces/a/configmaps";
    assert_eq!(world.ask("eve", list, Value::Null).await.0, 403);
    world.bind("namespaces/a/rolebindings", ("Role", "reader"), "eve").await;
    assert_eq!(world.ask("eve", list, Value::Null).await.0, 200);
    world.make(&format!("DELETE {RBAC}/namespaces/a/rolebindings/reader-eve"), Value::Null).await;
    world.settle().await;
    assert_eq!(world.ask("eve", list, Value::Null).await.0, 403);
}

/// Returns the response to bob when he grants more than he has.
fn beyond(about: &str, lines: &str) -> String {
    format!(
        "{about} is forbidden: user \"bob\" (groups=[\"others\" \"system:authenticated\"]) is attempting to grant RBAC permissions \
         not currently held:\n{lines}"
    )
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let world = with_roles().await;
    let roles = format!("POST {RBAC}/namespaces/a/roles");
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let within = json!([rule(&["get"], &[""], &["configmaps"])]);
    let wide = json!([rule(&["get", "delete"], &[""], &["configmaps"]), rule(&["*"], &["apps"], &["*"])]);
    let lines = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}\n{APIGroups:[\"apps\"], Resources:[\"*\"], \
                 Verbs:[\"*\"]}";
    world.check("bob", &roles, role("within", within.clone()), (201, "")).await;
    let told = beyond("roles.rbac.authorization.k8s.io \"wide\"", lines);
    world.check("bob", &roles, role("wide", wide.clone()), (403, &told)).await;
    // Changing a role that is there is no way round, nor is replacing it.
    let one = format!("{RBAC}/namespaces/a/roles/within");
    let told = beyond("roles.rbac.authorization.k8s.io \"within\"", lines);
    world.check("bob", &format!("PATCH {one}"), json!({"rules": wide}), (403, &told)).await;
    world.check("bob", &format!("PUT {one}"), role("within", wide.clone()), (403, &told)).await;
    world.check("bob", &format!("PATCH {one}"), json!({"metadata": {"labels": {"a": "b"}}}), (200, "")).await;
    // A role that holds more is changed by him only where nothing but its owners change.
    world.role("clusterroles", "strong", wide.clone()).await;
    let strong = format!("PATCH {RBAC}/clusterroles/strong");
    let told = beyond("clusterroles.rbac.authorization.k8s.io \"strong\"", lines);
    world.check("bob", &strong, json!({"metadata": {"labels": {"a": "b"}}}), (403, &told)).await;
    world.check("bob", &strong, json!({"metadata": {"finalizers": ["example.com/x"]}}), (200, "")).await;
    // Binding a role is granting it.
    let bindings = format!("POST {RBAC}/namespaces/a/rolebindings");
    let told = beyond("rolebindings.rbac.authorization.k8s.io \"b\"", lines);
    world.check("bob", &bindings, binding("b", ("ClusterRole", "strong"), "bob"), (403, &told)).await;
    world.check("bob", &bindings, binding("b", ("Role", "within"), "eve"), (201, "")).await;
    let told = beyond("clusterrolebindings.rbac.authorization.k8s.io \"b\"", lines);
    let all = format!("POST {RBAC}/clusterrolebindings");
    world.check("bob", &all, binding("b", ("ClusterRole", "strong"), "bob"), (403, &told)).await;
    let gone = "clusterroles.rbac.authorization.k8s.io \"gone\" not found";
    world.check("bob", &all, binding("b", ("ClusterRole", "gone"), "bob"), (404, gone)).await;
    // Who gathers the rules of others may gather anything.
    let gathers = json!({"metadata": {"name": "gathers"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}});
    let why = "clusterroles.rbac.authorization.k8s.io \"gathers\" is forbidden: must have cluster-admin privileges to use the \
               aggregationRule";
    world.check("bob", &format!("POST {RBAC}/clusterroles"), gathers.clone(), (403, why)).await;
    world.check("root +system:masters", &format!("POST {RBAC}/clusterroles"), gathers, (201, "")).await;
}

#[tokio::test]
async fn escalate_and_bind_lift_the_guard() {
    let world = with_roles().await;
    let rbac = ["rbac.authorization.k8s.io"];
    let wide = json!([rule(&["*"], &["apps"], &["*"])]);
    world.role("clusterroles", "strong", wide.clone()).await;
    world.role("clusterroles", "escalates", json!([rule(&["escalate"], &rbac, &["roles"])])).await;
    world.bind("namespaces/a/rolebindings", ("ClusterRole", "escalates"), "bob").await;
    let binds =
        json!([{"verbs": ["bind"], "apiGroups": rbac, "resources": ["clusterroles"], "resourceNames": ["strong"]}]);
    world.role("clusterroles", "binds", binds).await;
    world.bind("namespaces/a/rolebindings", ("ClusterRole", "binds"), "bob").await;
    let made = json!({"metadata": {"name": "wide"}, "rules": wide});
    world.check("bob", &format!("POST {RBAC}/namespaces/a/roles"), made.clone(), (201, "")).await;
    let bindings = format!("POST {RBAC}/namespaces/a/rolebindings");
    world.check("bob", &bindings, binding("b", ("ClusterRole", "strong"), "bob"), (201, "")).await;
    // Only there, and only those.
    let lines = "{APIGroups:[\"apps\"], Resources:[\"*\"], Verbs:[\"*\"]}";
    let told = beyond("clusterroles.rbac.authorization.k8s.io \"wide\"", lines);
    world.check("bob", &format!("POST {RBAC}/clusterroles"), made, (403, &told)).await;
    let told = beyond("clusterrolebindings.rbac.authorization.k8s.io \"b\"", lines);
    let all = format!("POST {RBAC}/clusterrolebindings");
    world.check("bob", &all, binding("b", ("ClusterRole", "strong"), "eve"), (403, &told)).await;
}

#[tokio::test]
async fn reviews_say_what_requests_would_be_told() {
    let world = with_roles().await;
    let ask = async |who: &str, kind: &str, spec: Value| {
        let path = match kind {
            "localsubjectaccessreviews" => format!("POST {REVIEWS}/namespaces/a/{kind}"),
            _ => format!("POST {REVIEWS}/{kind}"),
        };
        let (status, answer) = world.ask(who, &path, json!({"metadata": {}, "spec": spec})).await;
        if status == 201 { answer["status"].clone() } else { answer["message"].clone() }
    };
    let get = |namespace: &str| json!({"verb": "get", "resource": "configmaps", "namespace": namespace});
    let yes = json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"reader-alice/a\" of Role \"reader\" to User \"alice\""});
    let own = "selfsubjectaccessreviews";
    assert_eq!(ask("alice", own, json!({"resourceAttributes": get("a")})).await, yes);
    assert_eq!(ask("alice", own, json!({"resourceAttributes": get("b")})).await, json!({"allowed": false}));
    let version = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
    // Two bindings allow it; the first by name is told.
    let discovery = "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \
                     \"system:authenticated\"";
    assert_eq!(ask("alice", own, version).await, json!({"allowed": true, "reason": discovery}));
    let root = "root +system:masters";
    let about = json!({"user": "alice", "resourceAttributes": get("a")});
    assert_eq!(ask(root, "subjectaccessreviews", about.clone()).await, yes);
    assert_eq!(ask(root, "localsubjectaccessreviews", about.clone()).await, yes);
    let master = json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": get("a")});
    assert_eq!(ask(root, "subjectaccessreviews", master).await, json!({"allowed": true}));
    let refused = "subjectaccessreviews.authorization.k8s.io is forbidden: User \"alice\" cannot create resource \
                   \"subjectaccessreviews\" in API group \"authorization.k8s.io\" at the cluster scope";
    assert_eq!(ask("alice", "subjectaccessreviews", about).await, refused);
    let node = json!({"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": {"verb": "list", "resource": "nodes"}});
    assert_eq!(
        ask(root, "subjectaccessreviews", node).await,
        json!({"allowed": false, "reason": "node 'n1' cannot read all nodes, only its own Node object"})
    );
    let mut selected = get("a");
    selected["fieldSelector"] = json!({"rawSelector": "a"});
    let mut want = yes.clone();
    want["evaluationError"] = "spec.resourceAttributes.fieldSelector ignored due to parse error".into();
    assert_eq!(ask("alice", own, json!({"resourceAttributes": selected})).await, want);
    let rules = ask("alice", "selfsubjectrulesreviews", json!({"namespace": "a"})).await;
    let wanted = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps", "namespaces"]});
    assert!(rules["resourceRules"].as_array().unwrap().contains(&wanted), "{rules}");
    assert_eq!(rules["incomplete"], false);
    let none = ask("alice", "selfsubjectrulesreviews", json!({"namespace": ""})).await;
    assert_eq!(none, "no namespace on request");
    let node = ask("system:node:n1 +system:nodes", "selfsubjectrulesreviews", json!({"namespace": "a"})).await;
    assert_eq!(
        (&node["incomplete"], &node["evaluationError"]),
        (&json!(true), &json!("node authorizer does not support user rule resolution"))
    );
}

#[tokio::test]
async fn a_node_sees_what_its_pods_need() {
    let world = with_roles().await;
    for name in ["used", "other"] {
        world.make("POST /api/v1/namespaces/a/secrets", json!({"metadata": {"name": name}})).await;
    }
    world.make("POST /api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    world.make("POST /api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "secret": {"secretName": "used"}}]}});
    let node = "system:node:n1 +system:nodes";
    let secret =
        async |name: &str| world.ask(node, &format!("GET /api/v1/namespaces/a/secrets/{name}"), Value::Null).await;
    assert_eq!(secret("used").await.0, 403);
    world.make("POST /api/v1/namespaces/a/pods", pod).await;
    assert_eq!(world.ask("root +system:masters", "GET /api/v1/pods", Value::Null).await.0, 200);
    assert_eq!(secret("used").await.0, 200);
    let (status, answer) = secret("other").await;
    assert_eq!(
        (status, answer["message"].as_str().unwrap()),
        (
            403,
            "secrets \"other\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"a\": no relationship found between node 'n1' and this object"
        )
    );
    let (status, _) = world.ask(node, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1", Value::Null).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn modes_that_say_the_same_to_everybody() {
    let deny = World::new(vec![AuthorizationMode::AlwaysDeny]).await;
    let why = "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope: \
               Everything is forbidden.";
    deny.check("alice", "GET /api/v1/configmaps", Value::Null, (403, why)).await;
    deny.check("root +system:masters", "GET /api/v1/configmaps", Value::Null, (200, "")).await;
    let allow = World::new(vec![AuthorizationMode::AlwaysAllow]).await;
    allow.check("alice", "GET /api/v1/configmaps", Value::Null, (200, "")).await;
    let all = json!({"metadata": {"name": "all"}, "rules": [rule(&["*"], &["*"], &["*"])]});
    allow.check("alice", &format!("POST {RBAC}/clusterroles"), all, (201, "")).await;
}
