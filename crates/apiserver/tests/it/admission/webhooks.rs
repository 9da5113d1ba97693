//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook, with real servers on loopback.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{
    admission::world::{Answer, World, merge},
    fixture::authority::Authority,
};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A webhook: what it was asked, and how to reach it.
pub struct Hook {
    pub port: u16,
    bundle: String,
    pub asked: Arc<Mutex<Vec<Value>>>,
    serving: tokio::task::AbortHandle,
}

impl Hook {
    /// Answers every admission review with what `answer` makes of its request.
    pub async fn start(answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> Self {
        let hook = Self::plain(move |review| {
            let mut response = answer(&review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response})
        });
        hook.await
    }

    /// Answers everything that is posted with what `answer` makes of it.
    pub async fn plain(answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tls, asked) = (TlsAcceptor::from(authority.server()), Arc::new(Mutex::new(Vec::new())));
        let seen = asked.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, seen) = (tls.clone(), answer.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, seen) = (answer.clone(), seen.clone());
                        async move {
                            let bytes = request.into_body().collect().await?.to_bytes();
                            let review: Value = serde_json::from_slice(&bytes).unwrap();
                            let body = answer(&review);
                            seen.lock().unwrap().push(review);
                            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(body.to_string()))))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        let bundle = BASE64_STANDARD.encode(authority.pem());
        Self { port, bundle, asked, serving: serving.abort_handle() }
    }

    /// Takes no more connections.
    pub fn stop(&self) {
        self.serving.abort();
    }

    /// A kubeconfig that leads to it.
    pub fn kubeconfig(&self) -> String {
        let cluster = json!({"server": format!("https://127.0.0.1:{}/hook", self.port), "certificate-authority-data": self.bundle});
        let context = json!({"cluster": "c"});
        json!({"clusters": [{"name": "c", "cluster": cluster}], "contexts": [{"name": "x", "context": context}],
            "current-context": "x"})
        .to_string()
    }

    /// The requests of the admission reviews that it was asked.
    fn requests(&self) -> Vec<Value> {
        self.asked.lock().unwrap().iter().map(|review| review["request"].clone()).collect()
    }

    /// A configuration's entry for it.
    pub fn entry(&self, name: &str, more: Value) -> Value {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]});
        let mut entry = json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [rule],
            "clientConfig": {"url": format!("https://127.0.0.1:{}/hook", self.port), "caBundle": self.bundle}});
        merge(&mut entry, more);
        entry
    }
}

/// Configures webhooks and waits until they are asked.
pub async fn configure(world: &World, kind: &str, name: &str, entries: Vec<Value>) {
    let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations");
    world.create(&path, json!({"metadata": {"name": name}, "webhooks": entries})).await;
    world.settle(&path).await;
}

async fn create(world: &World, name: &str) -> Answer {
    world.send("POST", MAPS, &json!({"metadata": {"name": name}})).await
}

fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

#[tokio::test]
async fn validating_webhooks_refuse_and_warn() {
    let world = World::new(&[]).await;
    let hook = Hook::start(|request| match request["name"].as_str().unwrap_or_default() {
        "plain" => json!({"allowed": false}),
        "told" => json!({"allowed": false, "status": {"message": "not this one", "code": 418, "reason": "Conflict"}}),
        "reasoned" => json!({"allowed": false, "status": {"reason": "Forbidden", "code": 200}}),
        "warned" => json!({"allowed": true, "warnings": ["careful"], "auditAnnotations": {"k": "v"}}),
        "confused" => json!({"allowed": true, "uid": "other"}),
        "patching" => patch(json!([])),
        _ => json!({"allowed": true}),
    })
    .await;
    configure(&world, "validating", "c", vec![hook.entry("a.e.com", json!({}))]).await;
    let denied = "admission webhook \"a.e.com\" denied the request";
    create(&world, "fine").await.is((201, ""), "fine");
    create(&world, "plain").await.is((400, &format!("{denied} without explanation")), "plain");
    let told = create(&world, "told").await;
    told.is((418, &format!("{denied}: not this one")), "told");
    assert_eq!(told.body["reason"], "Conflict");
    create(&world, "reasoned").await.is((400, &format!("{denied}: Forbidden")), "reasoned");
    let warned = create(&world, "warned").await;
    assert_eq!((warned.code, warned.warnings), (201, vec!["careful".to_owned()]));
    let failed = "Internal error occurred: failed calling webhook \"a.e.com\": received invalid webhook response:";
    let may_not = "validating webhook may not return response.patch";
    create(&world, "patching").await.is((500, &format!("{failed} {may_not}")), "patching");
    let confused = create(&world, "confused").await;
    let message = confused.body["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{failed} expected response.uid=")), "{message}");
    let first = hook.requests()[0].clone();
    assert_eq!(
        (&first["operation"], &first["namespace"], &first["name"]),
        (&json!("CREATE"), &json!("default"), &json!("fine"))
    );
    assert_eq!(first["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!((&first["oldObject"], &first["dryRun"]), (&Value::Null, &json!(false)));
    assert_eq!((&first["userInfo"]["username"], &first["options"]["kind"]), (&json!("admin"), &json!("CreateOptions")));
    world.check("PATCH", &format!("{MAPS}/fine"), json!({"data": {"k": "v"}}), (200, "")).await;
    let seen = hook.requests().pop().unwrap();
    assert_eq!(
        (&seen["operation"], &seen["object"]["data"], seen["oldObject"].get("data")),
        (&json!("UPDATE"), &json!({"k": "v"}), None)
    );
    world.check("DELETE", &format!("{MAPS}/fine"), json!(null), (200, "")).await;
    let seen = hook.requests().pop().unwrap();
    assert_eq!((&seen["operation"], &seen["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(
        (&seen["oldObject"]["metadata"]["name"], &seen["options"]["kind"]),
        (&json!("fine"), &json!("DeleteOptions"))
    );
}

#[tokio::test]
async fn webhooks_are_asked_about_what_they_choose() {
    let world = World::new(&[]).await;
    world.namespace("other", json!({"team": "a"})).await;
    let hook = Hook::start(|_| json!({"allowed": false})).await;
    let wide = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["CREATE"], "scope": "Namespaced"}]);
    let entries = vec![
        hook.entry("ns.e.com", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "rules": wide})),
        hook.entry("object.e.com", json!({"objectSelector": {"matchLabels": {"guard": "yes"}}})),
    ];
    configure(&world, "validating", "c", entries).await;
    create(&world, "free").await.is((201, ""), "no selector matches");
    let denied = |hook: &str| format!("admission webhook {hook:?} denied the request without explanation");
    let guarded = json!({"metadata": {"name": "g", "labels": {"guard": "yes"}}});
    world.check("POST", MAPS, guarded, (400, &denied("object.e.com"))).await;
    let elsewhere = json!({"metadata": {"name": "x"}});
    world.check("POST", "/api/v1/namespaces/other/secrets", elsewhere, (400, &denied("ns.e.com"))).await;
    world
        .check("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n", "labels": {"team": "a"}}}), (201, ""))
        .await;
    world.check("DELETE", &format!("{CONFIGURATIONS}/validatingwebhookconfigurations/c"), json!(null), (200, "")).await;

    let rule = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"], "operations": ["*"]}]);
    configure(&world, "validating", "d", vec![hook.entry("old.e.com", json!({"rules": rule}))]).await;
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    world.check("POST", scalers, scaler.clone(), (400, &denied("old.e.com"))).await;
    let seen = hook.requests().pop().unwrap();
    assert_eq!((&seen["kind"]["version"], &seen["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(seen["object"]["apiVersion"], "autoscaling/v1");
    world.check("DELETE", &format!("{CONFIGURATIONS}/validatingwebhookconfigurations/d"), json!(null), (200, "")).await;
    configure(&world, "validating", "e", vec![hook.entry("old.e.com", json!({"rules": rule, "matchPolicy": "Exact"}))])
        .await;
    world.check("POST", scalers, scaler, (201, "")).await;
}

#[tokio::test]
async fn what_cannot_be_asked_fails_or_is_left_out() {
    let world = World::new(&[]).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let away = json!({"url": format!("https://127.0.0.1:{nobody}/x"), "caBundle": ""});
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    let check = async |more: Value, query: &str, want: (u16, &str)| {
        let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
        configure(&world, "validating", "c", vec![hook.entry("w.e.com", more.clone())]).await;
        let answer = world.send("POST", &format!("{MAPS}?{query}"), &json!({"metadata": {"generateName": "m-"}})).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.code, want.0, "{more}: {}", answer.body);
        assert!(message.starts_with(want.1), "{more}: {message}");
        world.check("DELETE", &format!("{path}/c"), json!(null), (200, "")).await;
        world.settle(&path).await;
    };
    let failed = "Internal error occurred: failed calling webhook \"w.e.com\": failed to call webhook:";
    let refused = format!(
        "{failed} Post \"https://127.0.0.1:{nobody}/x?timeout=10s\": dial tcp 127.0.0.1:{nobody}: connect: connection refused"
    );
    check(json!({"clientConfig": away}), "", (500, &refused)).await;
    check(json!({"clientConfig": away, "failurePolicy": "Ignore"}), "", (201, "")).await;
    let missing = format!("{failed} Post \"https://gone.default.svc:443/p?timeout=5s\": service \"gone\" not found");
    let service = json!({"service": {"namespace": "default", "name": "gone", "path": "/p"}});
    check(json!({"clientConfig": service, "timeoutSeconds": 5}), "", (500, &missing)).await;
    let url = format!("https://127.0.0.1:{}/hook", hook.port);
    let stranger = BASE64_STANDARD.encode(Authority::new().pem());
    let unknown = format!("{failed} Post \"{url}?timeout=10s\": tls: failed to verify certificate: ");
    check(json!({"clientConfig": {"url": url, "caBundle": stranger}}), "", (500, &unknown)).await;
    check(json!({}), "dryRun=All", (201, "")).await;
    check(json!({"sideEffects": "NoneOnDryRun"}), "dryRun=All", (201, "")).await;
    check(json!({"admissionReviewVersions": ["v1beta1"]}), "", (201, "")).await;
}

#[tokio::test]
async fn services_are_reached_by_their_endpoints_and_time_runs_out() {
    let world = World::new(&[]).await;
    let hook = Hook::start(|request| {
        if request["name"] == "slow" {
            std::thread::sleep(Duration::from_millis(1500));
        }
        json!({"allowed": false})
    })
    .await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 8443}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.2"]}], "ports": [{"name": "https", "port": hook.port}]});
    let answer = world.send("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "port": 8443}, "caBundle": hook.bundle});
    let url = json!({"url": format!("https://127.0.0.1:{}/hook", hook.port), "caBundle": hook.bundle});
    // Loopback is not an address that a slice may have.
    assert_eq!(answer.code, 422, "{}", answer.body);
    configure(
        &world,
        "validating",
        "c",
        vec![hook.entry("w.e.com", json!({"clientConfig": client, "timeoutSeconds": 1}))],
    )
    .await;
    let unreached = create(&world, "m").await;
    let message = unreached.body["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Post \"https://hook.default.svc:8443/?timeout=1s\": "), "{message}");
    world.check("DELETE", &format!("{CONFIGURATIONS}/validatingwebhookconfigurations/c"), json!(null), (200, "")).await;
    configure(
        &world,
        "validating",
        "d",
        vec![hook.entry("w.e.com", json!({"clientConfig": url, "timeoutSeconds": 1}))],
    )
    .await;
    let slow = create(&world, "slow").await;
    let message = slow.body["message"].as_str().unwrap();
    assert!(slow.code == 500 && message.ends_with("context deadline exceeded"), "{message}");
}

#[tokio::test]
async fn mutating_webhooks_change_objects_in_order_and_are_asked_again() {
    let world = World::new(&[]).await;
    let first = Hook::start(|request| match request["object"]["data"].get("second") {
        Some(_) => patch(json!([{"op": "add", "path": "/data/saw", "value": "second"}])),
        None => patch(json!([{"op": "add", "path": "/data", "value": {"first": "1"}}])),
    })
    .await;
    let second = Hook::start(|_| patch(json!([{"op": "add", "path": "/data/second", "value": "2"}]))).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(&world, "mutating", "b", vec![second.entry("second.e.com", json!({}))]).await;
    configure(&world, "mutating", "a", vec![first.entry("first.e.com", again)]).await;
    let made = create(&world, "m").await;
    made.is((201, ""), "m");
    assert_eq!(made.body["data"], json!({"first": "1", "second": "2", "saw": "second"}));
    assert_eq!((first.asked.lock().unwrap().len(), second.asked.lock().unwrap().len()), (2, 1));
    let owners = &made.body["metadata"]["managedFields"];
    assert!(!owners.to_string().contains("f:first"), "what webhooks add is nobody's: {owners}");
    let stored = world.send("GET", &format!("{MAPS}/m"), &Value::Null).await;
    assert_eq!(stored.body["data"], made.body["data"]);
}

#[tokio::test]
async fn patches_must_make_sense() {
    let world = World::new(&[]).await;
    let hook = Hook::start(|request| match request["name"].as_str().unwrap_or_default() {
        "untyped" => json!({"allowed": true, "patch": BASE64_STANDARD.encode("[]")}),
        "garbage" => json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode("{")}),
        "invalid" => patch(json!([{"op": "add", "path": "/data", "value": {"not a key!": "x"}}])),
        "nowhere" => patch(json!([{"op": "remove", "path": "/data/none"}])),
        _ => patch(json!([])),
    })
    .await;
    configure(&world, "mutating", "c", vec![hook.entry("w.e.com", json!({}))]).await;
    create(&world, "nothing").await.is((201, ""), "an empty patch");
    let failed = "Internal error occurred: failed calling webhook \"w.e.com\":";
    let untyped = "received invalid webhook response: webhook returned response.patch but not response.patchType";
    create(&world, "untyped").await.is((500, &format!("{failed} {untyped}")), "untyped");
    let garbage = create(&world, "garbage").await;
    assert!(garbage.body["message"].as_str().unwrap().starts_with(&format!("{failed} received undecodable patch")));
    let invalid = create(&world, "invalid").await;
    assert_eq!((invalid.code, &invalid.body["reason"]), (422, &json!("Invalid")), "{}", invalid.body);
    assert_eq!(create(&world, "nowhere").await.code, 500);
}
