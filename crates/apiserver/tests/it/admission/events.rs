//! EventRateLimit, case by case: the rates are so low that nothing comes back while the test runs.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, names};

const EVENTS: &str = "/api/v1/namespaces/default/events";

async fn world(limits: Value) -> World {
    let settings = AdmissionOptions::new(&names(&["EventRateLimit"]), &[]).unwrap();
    World::with(settings.with_plugin_config("EventRateLimit", json!({"limits": limits}))).await
}

fn limit(kind: &str, burst: u32) -> Value {
    json!({"type": kind, "qps": 1, "burst": burst})
}

fn event(name: usize, about: &str, component: &str) -> Value {
    json!({"metadata": {"name": format!("e{name}")}, "source": {"component": component},
        "involvedObject": {"namespace": "default", "name": about, "kind": "Pod"}})
}

/// Sends events as users about objects from components, and compares why they are refused.
async fn check(limits: Value, cases: &[(&str, &str, &str, &str)]) {
    let world = world(limits).await;
    for (at, (user, about, component, why)) in cases.iter().enumerate() {
        let answer = world.send_as(user, &["system:masters"], "POST", EVENTS, &event(at, about, component)).await;
        let want = if why.is_empty() { (201, "") } else { (429, *why) };
        answer.is(want, &format!("{at}: {user} {about} {component}"));
        if !why.is_empty() {
            assert_eq!(answer.body["details"]["retryAfterSeconds"], 1);
        }
    }
}

#[tokio::test]
async fn events_are_limited_by_what_they_share() {
    let server = "limit reached on type Server for key ";
    check(json!([limit("Server", 2)]), &[("a", "x", "c", ""), ("b", "y", "d", ""), ("c", "z", "e", server)]).await;
    let user = "limit reached on type User for key a";
    let of_user = [
        ("a", "x", "c", ""),
        ("a", "y", "c", user),
        ("b", "x", "c", ""),
        ("b", "x", "c", "limit reached on type User for key b"),
    ];
    check(json!([limit("User", 1)]), &of_user).await;
    let object = "limit reached on type SourceAndObject for key cPoddefaultx";
    let of_object = [("a", "x", "c", ""), ("b", "x", "c", object), ("a", "x", "d", ""), ("a", "y", "c", "")];
    check(json!([limit("SourceAndObject", 1)]), &of_object).await;
    let namespace = "limit reached on type Namespace for key default";
    check(json!([limit("Namespace", 1)]), &[("a", "x", "c", ""), ("b", "y", "d", namespace)]).await;
    let both = format!("[{user}, {namespace}]");
    check(json!([limit("User", 1), limit("Namespace", 1)]), &[("a", "x", "c", ""), ("a", "x", "c", &both)]).await;
}

#[tokio::test]
async fn what_is_not_stored_is_not_limited() {
    let world = world(json!([limit("Server", 1)])).await;
    for at in 0..3 {
        world.check("POST", &format!("{EVENTS}?dryRun=All"), event(at, "x", "c"), (201, "")).await;
        let map = json!({"metadata": {"name": format!("m{at}")}});
        world.check("POST", "/api/v1/namespaces/default/configmaps", map, (201, "")).await;
    }
    world.check("POST", EVENTS, event(0, "x", "c"), (201, "")).await;
    world.check("POST", EVENTS, event(1, "x", "c"), (429, "limit reached on type Server for key ")).await;
}

#[tokio::test]
async fn limits_must_make_sense() {
    for (limits, why) in [
        (json!([limit("Nope", 1)]), "unknown event rate limit type: Nope"),
        (json!([{"type": "Server", "qps": 0, "burst": 1}]), "limits: qps and burst must be positive"),
    ] {
        let settings = AdmissionOptions::new(&names(&["EventRateLimit"]), &[]).unwrap();
        let admission = settings.with_plugin_config("EventRateLimit", json!({"limits": limits}));
        let (store, _dir) = crate::fixture::store().await;
        let settings = ferry_apiserver::ServerOptions { admission, ..Default::default() };
        let error = ferry_apiserver::Server::with_options(crate::fixture::config(store), settings).await.err();
        let said = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(why), "{said}");
    }
}
