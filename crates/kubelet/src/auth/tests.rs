//! Tests against a fake API server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::*;

/// A fake API server that knows one token and allows `joe` to read pods and `admin` everything.
struct Reviewer {
    access: KubeletAuth,
    asked: Arc<AtomicUsize>,
}

impl Reviewer {
    fn new(works: bool) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, std::convert::Infallible>(answer(request, works).await) }
        });
        let client = kube::Client::new(service, "default");
        Self { access: KubeletAuth::new(client, "n"), asked }
    }

    async fn check(
        &self,
        certificate_user: Option<&str>,
        token: &str,
        call: (&str, &str),
        want: Result<(), AuthError>,
    ) {
        let user = certificate_user.map(|name| UserInfo { name: name.into(), ..UserInfo::default() });
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            headers.insert(header::AUTHORIZATION, token.parse().unwrap());
        }
        let (method, path) = (call.0.parse().unwrap(), call.1);
        let got = self.access.authorize_request(user.as_ref(), &method, path, &mut headers).await;
        assert_eq!(got, want, "{certificate_user:?} {token} {call:?}");
        assert!(headers.is_empty(), "the token goes no further");
    }
}

async fn answer(request: Request<kube::client::Body>, works: bool) -> Response<Full<bytes::Bytes>> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    if !works {
        return Response::builder().status(503).body(Full::default()).unwrap();
    }
    review["status"] = match review["kind"].as_str() {
        Some("TokenReview") if review["spec"]["token"] == "good" => {
            json!({"authenticated": true, "user": {"username": "joe", "groups": ["devs"]}})
        }
        Some("TokenReview") => json!({"authenticated": false, "error": "invalid bearer token"}),
        _ => {
            let asked = &review["spec"]["resourceAttributes"];
            assert_eq!((&asked["resource"], &asked["name"]), (&json!("nodes"), &json!("n")));
            let pods = asked["subresource"] == "pods" && asked["verb"] == "get";
            json!({"allowed": review["spec"]["user"] == "admin" || review["spec"]["user"] == "joe" && pods})
        }
    };
    Response::builder().status(201).body(Full::from(review.to_string())).unwrap()
}

fn forbidden(user: &str, verb: &str, subresources: &str) -> Result<(), AuthError> {
    let text = format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n");
    Err(AuthError::Forbidden(text))
}

#[tokio::test]
async fn reviews_decide_authentication_and_authorization() {
    let reviewer = Reviewer::new(true);
    reviewer.check(Some("admin"), "", ("GET", "/pods"), Ok(())).await;
    reviewer.check(Some("admin"), "", ("POST", "/exec/a/b/c"), Ok(())).await;
    reviewer.check(Some("admin"), "Bearer bad", ("GET", "/pods"), Ok(())).await;
    reviewer.check(Some("joe"), "", ("GET", "/pods"), Ok(())).await;
    reviewer.check(Some("joe"), "", ("POST", "/exec/a/b/c"), forbidden("joe", "create", "proxy")).await;
    reviewer.check(Some("jane"), "", ("GET", "/pods"), forbidden("jane", "get", "pods proxy")).await;
    reviewer.check(Some("jane"), "", ("GET", "/metrics"), forbidden("jane", "get", "metrics")).await;
    reviewer.check(None, "Bearer good", ("GET", "/pods"), Ok(())).await;
    reviewer.check(None, "bearer good", ("GET", "/pods"), Ok(())).await;
    reviewer.check(None, "Bearer good", ("DELETE", "/pods"), forbidden("joe", "delete", "pods proxy")).await;
    reviewer.check(None, "Bearer bad", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    reviewer.check(None, "Basic am9lOmpvZQ==", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    reviewer.check(None, "Bearer", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    reviewer.check(None, "", ("GET", "/healthz"), Err(AuthError::Unauthorized)).await;
}

#[tokio::test]
async fn review_results_are_cached() {
    let reviewer = Reviewer::new(true);
    for _ in 0..5 {
        reviewer.check(None, "Bearer good", ("GET", "/pods"), Ok(())).await;
        reviewer.check(None, "Bearer bad", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    }
    assert_eq!(reviewer.asked.load(Ordering::Relaxed), 3, "two tokens and one decision");
}

#[tokio::test]
async fn failing_review_rejects_the_request() {
    let reviewer = Reviewer::new(false);
    let failed = "Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)";
    reviewer.check(Some("admin"), "", ("GET", "/pods"), Err(AuthError::Failed(failed.into()))).await;
    reviewer.check(None, "Bearer good", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    reviewer.check(None, "Bearer good", ("GET", "/pods"), Err(AuthError::Unauthorized)).await;
    assert_eq!(reviewer.asked.load(Ordering::Relaxed), 3, "what failed is not remembered");
}
