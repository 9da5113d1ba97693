//! Tokens that a webhook knows.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use apiserver_core::http_client::endpoint_from_kubeconfig;
use http::Response;
use serde_json::{Value, json};

use super::{
    listener::{Listener, Sent, kubeconfig},
    *,
};

/// A webhook that answers by the token, and counts how often it was asked.
async fn webhook(version: &'static str) -> (Listener, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let listener = Listener::start(move |sent| {
        count.fetch_add(1, Ordering::Relaxed);
        answer(&sent, version)
    })
    .await;
    (listener, asked)
}

fn answer(sent: &Sent, version: &str) -> Response<String> {
    assert_eq!(
        (sent.path.as_str(), &sent.headers["authorization"]),
        ("/hook", &HeaderValue::from_static("Bearer own"))
    );
    let mut review: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!((&review["kind"], &review["apiVersion"]), (&json!("TokenReview"), &json!(version)));
    assert_eq!(review["spec"]["audiences"], json!(["api"]));
    let user = json!({"username": "joe", "uid": "7", "groups": ["devs"], "extra": {"acme.com/a": ["x", "y"]}});
    let token = review["spec"]["token"].as_str().unwrap().to_owned();
    review["status"] = match token.as_str() {
        "good" => json!({"authenticated": true, "user": user}),
        "ours" => json!({"authenticated": true, "user": user, "audiences": ["x", "api"]}),
        "theirs" => json!({"authenticated": true, "user": user, "audiences": ["x"]}),
        "bare" => json!({"authenticated": true, "user": {}}),
        "reason" => json!({"authenticated": false, "error": "it was revoked"}),
        "liar" => json!({"authenticated": false, "user": user}),
        "nonsense" => return Response::new("nonsense".into()),
        "other" => return Response::new(json!({"kind": "Pod"}).to_string()),
        "forbidden" => return Response::builder().status(403).body("go away".into()).unwrap(),
        _ => json!({}),
    };
    Response::new(review.to_string())
}

async fn world(version: ReviewVersion, listener: &Listener) -> World {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Arc::new(endpoint_from_kubeconfig(&kubeconfig(dir.path(), listener, "token: own")).unwrap());
    let webhook = Some(TokenWebhook { endpoint, review_version: version, ttl: Duration::from_secs(3600) });
    World::new(AuthenticationConfig { webhook, audiences: vec!["api".into()], ..AuthenticationConfig::default() }).await
}

#[tokio::test]
async fn a_webhook_knows_tokens() {
    let (listener, _) = webhook("authentication.k8s.io/v1").await;
    let world = world(ReviewVersion::V1, &listener).await;
    let joe = "joe/7 devs system:authenticated acme.com/a=x+y";
    for (token, want) in [
        ("good", joe),
        ("ours", joe),
        ("bare", "/ system:authenticated"),
        ("theirs", "401 invalid bearer token"),
        ("unknown", "401 invalid bearer token"),
        ("liar", "401 invalid bearer token"),
        ("reason", "401 it was revoked"),
        ("forbidden", "401 the server responded 403 Forbidden: go away"),
        ("other", "401 malformed response: it is no TokenReview"),
    ] {
        world.check_token(token, want).await;
    }
    let (got, _) = world.who(&[("authorization", "Bearer nonsense")], None, "/").await;
    assert!(got.starts_with("401 malformed response: "), "{got}");
}

#[tokio::test]
async fn answers_are_remembered_and_errors_are_not() {
    let (listener, asked) = webhook("authentication.k8s.io/v1beta1").await;
    let world = world(ReviewVersion::V1Beta1, &listener).await;
    for (token, times) in [("good", 1), ("unknown", 1), ("reason", 3), ("forbidden", 3)] {
        let before = asked.load(Ordering::Relaxed);
        for _ in 0..3 {
            world.who(&[("authorization", &format!("Bearer {token}"))], None, "/").await;
        }
        assert_eq!(asked.load(Ordering::Relaxed) - before, times, "{token}");
    }
}

#[tokio::test]
async fn a_webhook_that_is_not_there_knows_nobody() {
    let (listener, _) = webhook("authentication.k8s.io/v1").await;
    let world = world(ReviewVersion::V1, &listener).await;
    let url = listener.url.clone();
    drop(listener);
    // Its task ends with the next turn of the runtime, and its socket with it.
    while tokio::net::TcpStream::connect(url.trim_start_matches("https://")).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let (got, _) = world.who(&[("authorization", "Bearer good")], None, "/").await;
    assert!(got.starts_with("401 dial tcp 127.0.0.1:") && got.ends_with("connect: connection refused"), "{got}");
}
