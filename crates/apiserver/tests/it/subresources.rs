//! Subresources in process: evictions within budgets, tokens, bindings, and the fields that each may change.

use crate::fixture;
use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

struct Fixture {
    service: LocalService,
    _dir: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (service, dir) = fixture::server().await;
        Self { service, _dir: dir }
    }

    async fn answer(&self, method: &str, path: &str, body: Value) -> http::Response<ferry_apiserver::Body> {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        self.service.clone().oneshot(request.body(Full::new(bytes)).unwrap()).await.unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let response = self.answer(method, path, body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Sends a request that must be rejected; returns the message.
    async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.send(method, path, body).await;
        (status, answer["message"].as_str().unwrap_or_default().to_owned())
    }

    #[track_caller]
    fn created(answer: (u16, Value)) -> Value {
        assert!((200..300).contains(&answer.0), "{answer:?}");
        answer.1
    }

    async fn pod(&self, name: &str, more: Value) -> Value {
        let mut pod = json!({"metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}});
        for (field, value) in more.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        Self::created(self.send("POST", PODS, pod).await)
    }

    /// A pod that runs on a node.
    async fn running(&self, name: &str, ready: bool) {
        self.pod(name, json!({"nodeName": "n"})).await;
        let ready = if ready { "True" } else { "False" };
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        Self::created(self.send("PATCH", &format!("{PODS}/{name}/status"), status).await);
    }

    async fn budget(&self, status: Value) {
        let budget = json!({"metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
        Self::created(self.send("POST", BUDGETS, budget).await);
        Self::created(self.send("PATCH", &format!("{BUDGETS}/b/status"), json!({"status": status})).await);
    }

    async fn evict(&self, name: &str) -> (u16, Value) {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        self.send("POST", &format!("{PODS}/{name}/eviction"), eviction).await
    }
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_ends() {
    let f = Fixture::new().await;
    f.running("p", true).await;
    assert_eq!(f.evict("p").await.0, 201);
    let (_, pod) = f.send("GET", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
    f.pod("waiting", json!({})).await;
    let dry = json!({"metadata": {"name": "waiting"}});
    assert_eq!(f.send("POST", &format!("{PODS}/waiting/eviction?dryRun=All"), dry).await.0, 201);
    assert_eq!(f.send("GET", &format!("{PODS}/waiting"), Value::Null).await.0, 200);
    assert_eq!(f.evict("waiting").await.0, 201, "no budget protects what does not run");
    assert_eq!(f.evict("waiting").await.0, 404);
}

#[tokio::test]
async fn a_budget_that_is_used_up_refuses() {
    let f = Fixture::new().await;
    f.running("p", true).await;
    f.running("sick", false).await;
    f.budget(json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1})).await;
    let (status, answer) = f.evict("p").await;
    assert_eq!((status, &answer["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(answer["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    let cause = json!({"reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently"});
    assert_eq!(answer["details"], json!({"causes": [cause]}));
    assert_eq!(f.evict("sick").await.0, 201, "enough others are healthy");
    f.send("PATCH", &format!("{BUDGETS}/b"), json!({"spec": {"minAvailable": 2}})).await;
    let response = f.answer("POST", &format!("{PODS}/p/eviction"), json!({"metadata": {"name": "p"}})).await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"10".parse().unwrap()));
}

#[tokio::test]
async fn unhealthy_pods_may_always_go_if_the_budget_says_so() {
    let f = Fixture::new().await;
    f.running("sick", false).await;
    f.budget(json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1})).await;
    assert_eq!(f.evict("sick").await.0, 429);
    let policy = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    f.send("PATCH", &format!("{BUDGETS}/b"), policy).await;
    assert_eq!(f.evict("sick").await.0, 201);
}

#[tokio::test]
async fn concurrent_evictions_are_exactly_as_many_as_allowed() {
    let f = Fixture::new().await;
    for n in 0..12 {
        f.running(&format!("p{n}"), true).await;
    }
    f.budget(json!({"observedGeneration": 1, "disruptionsAllowed": 5, "currentHealthy": 12, "desiredHealthy": 7}))
        .await;
    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    let answers = futures::future::join_all(names.iter().map(|name| f.evict(name))).await;
    let mut counts = [0, 0];
    for (status, answer) in &answers {
        match status {
            201 => counts[0] += 1,
            429 => counts[1] += 1,
            _ => panic!("{answer}"),
        }
    }
    assert_eq!(counts, [5, 7]);
    let (_, budget) = f.send("GET", &format!("{BUDGETS}/b"), Value::Null).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"].as_object().unwrap().len(), 5);
    let condition = &budget["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionAllowed"), &json!("False")));
}

#[tokio::test]
async fn evictions_that_name_another_pod_are_refused() {
    let f = Fixture::new().await;
    f.pod("p", json!({})).await;
    let path = format!("{PODS}/p/eviction");
    let (status, why) = f.refused("POST", &path, json!({"metadata": {"name": "q"}})).await;
    assert_eq!((status, why.as_str()), (400, "name in URL does not match name in Eviction object"));
    let other = json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "other"}}});
    let (status, why) = f.refused("POST", &path, other).await;
    assert!(status == 409 && why.contains("the UID in the precondition (other) does not match"), "{why}");
    let old = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(f.send("POST", &path, old).await.0, 201);
}

#[tokio::test]
async fn bindings_are_refused_in_upstream_s_words() {
    let f = Fixture::new().await;
    f.pod("p", json!({})).await;
    f.pod("gated", json!({"schedulingGates": [{"name": "a.b/c"}]})).await;
    let bind = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let path = format!("{PODS}/p/binding");
    assert_eq!(f.refused("POST", &path, bind("q")).await.1, "name in URL does not match name in Binding object");
    let nowhere = json!({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": ""}});
    let (status, why) = f.refused("POST", &path, nowhere).await;
    assert_eq!(status, 500);
    assert!(why.contains("supported values: \"Node\", \"<empty>\", target.name: Required value"), "{why}");
    assert_eq!(f.send("POST", &path, bind("p")).await.0, 201);
    let (status, why) = f.refused("POST", "/api/v1/namespaces/default/bindings", bind("p")).await;
    let told = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
    assert_eq!((status, why.as_str()), (409, told));
    let (_, why) = f.refused("POST", &format!("{PODS}/gated/binding"), bind("gated")).await;
    assert!(why.ends_with("pod gated has non-empty .spec.schedulingGates"), "{why}");
}

#[tokio::test]
async fn ephemeral_containers_are_all_that_their_path_changes() {
    let f = Fixture::new().await;
    f.pod("p", json!({})).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let change = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"nodeName": "n",
        "ephemeralContainers": [{"name": "debug", "image": "i"}]}, "status": {"phase": "Failed"}});
    let pod = Fixture::created(f.send("PATCH", &path, change).await);
    assert_eq!(pod["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!((&pod["metadata"]["labels"], &pod["status"]["phase"]), (&json!({"app": "a"}), &json!("Pending")));
    assert_eq!((pod["spec"].get("nodeName"), &pod["metadata"]["generation"]), (None, &json!(2)));
    let (status, why) = f.refused("PATCH", &path, json!({"spec": {"ephemeralContainers": []}})).await;
    assert!(status == 422 && why.contains("existing ephemeral containers \"debug\" may not be removed"), "{why}");
    assert_eq!(f.send("GET", &path, Value::Null).await.1["metadata"]["name"], "p");
}

#[tokio::test]
async fn a_resize_changes_what_containers_ask_for() {
    let f = Fixture::new().await;
    f.pod("p", json!({})).await;
    let path = format!("{PODS}/p/resize");
    let resize = |cpu: &str| {
        json!({"metadata": {"labels": {"x": "y"}},
            "spec": {"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": cpu}}}]}})
    };
    let pod = Fixture::created(f.send("PATCH", &path, resize("200m")).await);
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["resources"]["requests"]["cpu"], &container["image"]), (&json!("200m"), &json!("i")));
    assert_eq!((&pod["metadata"]["labels"], &pod["metadata"]["generation"]), (&json!({"app": "a"}), &json!(2)));
    let gone = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}});
    let (status, why) = f.refused("PATCH", &path, gone).await;
    assert!(status == 422 && why.contains("Pod QOS Class may not change as a result of resizing"), "{why}");
    let added = json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}});
    let (_, why) = f.refused("PATCH", &path, added).await;
    assert!(why.contains("containers may not be added or removed on resize"), "{why}");
}

#[tokio::test]
async fn a_status_is_written_without_the_metadata_where_upstream_does_so() {
    let f = Fixture::new().await;
    let path = "/apis/storage.k8s.io/v1/volumeattachments";
    let spec = json!({"attacher": "a.e.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}});
    Fixture::created(f.send("POST", path, json!({"metadata": {"name": "v"}, "spec": spec})).await);
    let change = json!({"metadata": {"labels": {"a": "b"}}, "status": {"attached": true}});
    let changed = Fixture::created(f.send("PATCH", &format!("{path}/v/status"), change.clone()).await);
    assert_eq!((changed["metadata"].get("labels"), &changed["status"]["attached"]), (None, &json!(true)));
    f.pod("p", json!({})).await;
    let changed = Fixture::created(f.send("PATCH", &format!("{PODS}/p/status"), change).await);
    assert_eq!(changed["metadata"]["labels"], json!({"app": "a", "a": "b"}));
    assert_eq!(changed["status"]["qosClass"], "Burstable");
}

#[tokio::test]
async fn finalize_changes_a_namespace_s_finalizers() {
    let f = Fixture::new().await;
    Fixture::created(f.send("POST", "/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await);
    let path = "/api/v1/namespaces/x/finalize";
    let wrong = json!({"metadata": {"name": "x"}, "spec": {"finalizers": ["bad name"]}});
    assert_eq!(f.send("PUT", path, wrong).await.0, 422);
    assert_eq!(f.send("DELETE", "/api/v1/namespaces/x", Value::Null).await.0, 200);
    let none = json!({"metadata": {"name": "x"}, "spec": {"finalizers": []}});
    assert_eq!(f.send("PUT", path, none).await.0, 200);
    assert_eq!(f.send("GET", "/api/v1/namespaces/x", Value::Null).await.0, 404);
}

/// Whatever an answer is, it is never that this server has no such thing.
#[tokio::test]
async fn every_subresource_is_served() {
    let f = Fixture::new().await;
    let mut asked = 0;
    for resource in api::schema::schema().resources() {
        let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        let scope = if resource.is_namespaced() { "/namespaces/default" } else { "" };
        let base = format!("{root}/{}{scope}/{}/x", resource.version, resource.name);
        for sub in &resource.subresources {
            for verb in &sub.verbs {
                let method = match *verb {
                    "create" => "POST",
                    "update" => "PUT",
                    "patch" => "PATCH",
                    "delete" => "DELETE",
                    _ => "GET",
                };
                let body = if method == "GET" { Value::Null } else { json!({"metadata": {"name": "x"}}) };
                let (status, answer) = f.send(method, &format!("{base}/{}", sub.name), body).await;
                assert!(![200, 405, 501].contains(&status), "{method} {base}/{}: {status} {answer}", sub.name);
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "{asked}");
}

mod token {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

    use super::*;

    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

    async fn fixture() -> Fixture {
        let f = Fixture::new().await;
        Fixture::created(f.send("POST", ACCOUNTS, json!({"metadata": {"name": "robot"}})).await);
        f
    }

    async fn request(f: &Fixture, spec: Value) -> (u16, Value) {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        f.send("POST", &format!("{ACCOUNTS}/robot/token"), body).await
    }

    fn part(token: &str, at: usize) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(at).unwrap()).unwrap()
    }

    fn claims(answer: &Value) -> Value {
        serde_json::from_slice(&part(answer["status"]["token"].as_str().unwrap(), 1)).unwrap()
    }

    #[tokio::test]
    async fn a_token_can_be_checked_with_the_published_key() {
        let f = fixture().await;
        let answer = Fixture::created(request(&f, json!({"audiences": ["a"], "expirationSeconds": 601})).await);
        let token = answer["status"]["token"].as_str().unwrap();
        let claims = claims(&answer);
        assert_eq!((&claims["aud"], &claims["sub"]), (&json!(["a"]), &json!("system:serviceaccount:default:robot")));
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 601);
        assert_eq!(claims["kubernetes.io"]["serviceaccount"]["uid"], answer["metadata"]["uid"]);
        let (_, keys) = f.send("GET", "/openid/v1/jwks", Value::Null).await;
        let key = &keys["keys"][0];
        let header: Value = serde_json::from_slice(&part(token, 0)).unwrap();
        assert_eq!((&header["kid"], &header["alg"]), (&key["kid"], &json!("ES256")));
        let coordinate = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let public = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
        let signed = token.rsplit_once('.').unwrap().0;
        public.verify(signed.as_bytes(), &part(token, 2)).unwrap();
        let (_, found) = f.send("GET", "/.well-known/openid-configuration", Value::Null).await;
        assert_eq!(found["issuer"], claims["iss"]);
    }

    #[tokio::test]
    async fn requests_and_answers_may_be_protobuf() {
        let f = fixture().await;
        f.pod("p", json!({})).await;
        let ask = |path: String, object: Value| {
            let body = api::protobuf::encode_declared(&object).unwrap();
            let media = "application/vnd.kubernetes.protobuf";
            let request = Request::post(path).header("content-type", media).header("accept", media);
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let service = f.service.clone();
            async move {
                let response = service.oneshot(request).await.unwrap();
                let status = response.status().as_u16();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                (status, api::protobuf::decode_object(&bytes).unwrap())
            }
        };
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["a"], "expirationSeconds": 700}});
        let answer = Fixture::created(ask(format!("{ACCOUNTS}/robot/token"), request).await);
        assert_eq!(claims(&answer)["aud"], json!(["a"]));
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let answer = Fixture::created(ask(format!("{PODS}/p/eviction"), eviction).await);
        assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    }

    #[tokio::test]
    async fn a_token_is_bound_to_what_the_request_names() {
        let f = fixture().await;
        let pod = f.pod("p", json!({"serviceAccountName": "robot", "nodeName": "n"})).await;
        let reference = |kind: &str, name: &str| json!({"kind": kind, "apiVersion": "v1", "name": name});
        let spec = json!({"boundObjectRef": reference("Pod", "p"), "expirationSeconds": 3607});
        let bound = claims(&Fixture::created(request(&f, spec).await));
        let details = &bound["kubernetes.io"];
        assert_eq!(details["pod"], json!({"name": "p", "uid": pod["metadata"]["uid"]}));
        assert_eq!(details["node"], json!({"name": "n"}));
        let now = bound["iat"].as_i64().unwrap();
        assert_eq!(details["warnafter"].as_i64().unwrap() - now, 3607);
        assert_eq!(bound["exp"].as_i64().unwrap() - now, 365 * 24 * 3600);
        for (spec, status, why) in [
            (json!({"boundObjectRef": reference("Secret", "x")}), 404, "secrets \"x\" not found"),
            (json!({"boundObjectRef": reference("Pod", "x")}), 404, "pods \"x\" not found"),
            (json!({"boundObjectRef": reference("ConfigMap", "x")}), 400, "object of type /v1, Kind=ConfigMap"),
            (json!({"expirationSeconds": 1}), 422, "may not specify a duration less than 10 minutes"),
        ] {
            let (code, answer) = request(&f, spec).await;
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(code == status && message.contains(why), "{code} {message}");
        }
    }
}
