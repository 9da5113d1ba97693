//! Tests of the webhook authorizer against a TLS server.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fs,
    sync::Mutex,
    time::{Duration, Instant},
};

use apiserver_core::selectors::RequestSelectors;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// The server's reaction to a request.
#[derive(Clone)]
enum ServerReply {
    Status(u16, String),
    Never,
}

#[derive(Default)]
struct ReceivedReviews {
    questions: Vec<Value>,
    replies: VecDeque<ServerReply>,
}

/// A webhook server on loopback.
struct WebhookServer {
    heard: Arc<Mutex<ReceivedReviews>>,
    kubeconfig: tempfile::TempDir,
}

impl WebhookServer {
    /// A server whose certificate the kubeconfig trusts or not.
    async fn new(trusted: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.crt"), if trusted { made.cert.pem() } else { other.cert.pem() }).unwrap();
        let config = format!(
            "current-context: webhook\ncontexts:\n- name: webhook\n  context: {{cluster: there, user: me}}\nclusters:\n- name: \
             there\n  cluster: {{server: \"https://127.0.0.1:{port}/authorize\", certificate-authority: ca.crt}}\nusers:\n- \
             name: me\n  user: {{token: let-me-ask}}\n"
        );
        fs::write(dir.path().join("config"), config).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let heard = Arc::new(Mutex::new(ReceivedReviews::default()));
        tokio::spawn(serve_connections(listener, TlsAcceptor::from(Arc::new(tls)), heard.clone()));
        Self { heard, kubeconfig: dir }
    }

    fn set_replies(&self, replies: impl IntoIterator<Item = ServerReply>) {
        self.heard.lock().unwrap().replies.extend(replies);
    }

    fn received_reviews(&self) -> Vec<Value> {
        self.heard.lock().unwrap().questions.clone()
    }

    fn webhook_config(&self) -> WebhookConfig {
        let endpoint = http_client::endpoint_from_kubeconfig(&self.kubeconfig.path().join("config")).unwrap();
        let backoff = RetryBackoff { initial_delay: Duration::from_millis(1), attempts: 3 };
        WebhookConfig {
            backoff,
            timeout: Duration::from_millis(500),
            ..WebhookConfig::new(endpoint, ReviewVersion::V1)
        }
    }
}

async fn serve_connections(listener: TcpListener, acceptor: TlsAcceptor, heard: Arc<Mutex<ReceivedReviews>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, heard) = (acceptor.clone(), heard.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| handle_review(request, heard.clone()));
            // Disconnects are expected.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle_review(
    request: Request<Incoming>,
    heard: Arc<Mutex<ReceivedReviews>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/authorize");
    assert_eq!(request.headers()["authorization"], "Bearer let-me-ask");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let reply = {
        let mut heard = heard.lock().unwrap();
        heard.questions.push(serde_json::from_slice(&body).unwrap());
        heard.replies.pop_front().unwrap_or(ServerReply::Never)
    };
    match reply {
        ServerReply::Status(status, body) => Ok(Response::builder().status(status).body(Full::from(body)).unwrap()),
        ServerReply::Never => std::future::pending().await,
    }
}

fn status_reply(status: Value) -> ServerReply {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status});
    ServerReply::Status(200, review.to_string())
}

fn alice() -> User {
    let extra = [("scopes".to_owned(), vec!["x".to_owned()])].into();
    User { name: "alice".into(), groups: vec!["devs".into()], uid: "u1".into(), extra }
}

async fn authorize_name(authorizer: &WebhookAuthorizer, name: &str) -> Decision {
    let resource =
        ResourceAttributes { version: "v1", resource: "pods", namespace: "a", name, ..ResourceAttributes::default() };
    authorizer
        .authorize(&Attributes { user: &alice(), verb: "get", target: AttributesTarget::Resource(resource) })
        .await
}

/// Returns the decision, its reason and whether it has an error.
fn describe_decision(decision: &Decision) -> (&'static str, String, bool) {
    let word = match decision {
        Decision::Allowed(_) => "allowed",
        Decision::Denied(_) => "denied",
        Decision::NoOpinion(_) => "no opinion",
    };
    (word, decision.reason().to_string(), decision.reason().error().is_some())
}

async fn assert_decision(
    server: &WebhookServer,
    replies: &[ServerReply],
    failure: FailurePolicy,
    want: (&'static str, &str, bool),
    calls: usize,
) {
    let before = server.received_reviews().len();
    server.set_replies(replies.iter().cloned());
    let authorizer = WebhookAuthorizer::new(WebhookConfig { failure, ..server.webhook_config() });
    let (word, reason, failed) = want;
    assert_eq!(describe_decision(&authorize_name(&authorizer, "p").await), (word, reason.to_owned(), failed));
    assert_eq!(server.received_reviews().len() - before, calls, "calls");
}

#[tokio::test]
async fn decision_follows_the_review_status() {
    let server = WebhookServer::new(true).await;
    let open = FailurePolicy::NoOpinion;
    assert_decision(&server, &[status_reply(json!({"allowed": true}))], open, ("allowed", "", false), 1).await;
    let why = status_reply(json!({"allowed": true, "reason": "she is nice"}));
    assert_decision(&server, &[why], open, ("allowed", "she is nice", false), 1).await;
    let no = status_reply(json!({"allowed": false, "reason": "who is she?"}));
    assert_decision(&server, &[no], FailurePolicy::Deny, ("no opinion", "who is she?", false), 1).await;
    let never = status_reply(json!({"denied": true, "reason": "never"}));
    assert_decision(&server, &[never], open, ("denied", "never", false), 1).await;
    assert_decision(&server, &[status_reply(json!({"allowed": true, "denied": true}))], open, ("denied", "", true), 1)
        .await;
    assert_decision(&server, &[status_reply(json!({}))], open, ("no opinion", "", false), 1).await;
}

#[tokio::test]
async fn failure_policy_applies_to_failed_requests() {
    let server = WebhookServer::new(true).await;
    let (broken, garbage) = (ServerReply::Status(500, "oops".into()), ServerReply::Status(200, "oops".into()));
    let other = ServerReply::Status(200, json!({"apiVersion": "v1", "kind": "Status"}).to_string());
    for (failure, word) in [(FailurePolicy::NoOpinion, "no opinion"), (FailurePolicy::Deny, "denied")] {
        assert_decision(&server, &[broken.clone(), broken.clone(), broken.clone()], failure, (word, "", true), 3).await;
        assert_decision(&server, &[ServerReply::Status(403, "no".into())], failure, (word, "", true), 1).await;
        assert_decision(&server, std::slice::from_ref(&garbage), failure, (word, "", true), 1).await;
        assert_decision(&server, std::slice::from_ref(&other), failure, (word, "", true), 1).await;
        assert_decision(&server, &[ServerReply::Never], failure, (word, "", true), 1).await;
    }
    // Temporary errors are retried.
    let again = [broken.clone(), broken, status_reply(json!({"allowed": true}))];
    assert_decision(&server, &again, FailurePolicy::Deny, ("allowed", "", false), 3).await;
}

#[tokio::test]
async fn server_with_an_untrusted_certificate_is_not_used() {
    let server = WebhookServer::new(false).await;
    assert_decision(
        &server,
        &[status_reply(json!({"allowed": true}))],
        FailurePolicy::NoOpinion,
        ("no opinion", "", true),
        0,
    )
    .await;
}

#[tokio::test]
async fn responses_are_cached_for_their_ttl() {
    let server = WebhookServer::new(true).await;
    server.set_replies((0..10).map(|at| status_reply(json!({"allowed": at % 2 == 0}))));
    let authorizer = WebhookAuthorizer::new(server.webhook_config());
    for (name, allowed, questions) in [("a", true, 1), ("a", true, 1), ("b", false, 2), ("b", false, 2), ("a", true, 2)]
    {
        assert_eq!(
            (authorize_name(&authorizer, name).await.is_allowed(), server.received_reviews().len()),
            (allowed, questions),
            "{name}"
        );
    }
    // Large requests are not cached.
    let long = "x".repeat(MAX_CACHED_SIZE);
    for questions in [3, 4] {
        authorize_name(&authorizer, &long).await;
        assert_eq!(server.received_reviews().len(), questions);
    }
    let forgetful =
        WebhookConfig { allowed_for: Duration::ZERO, refused_for: Duration::ZERO, ..server.webhook_config() };
    let forgetful = WebhookAuthorizer::new(forgetful);
    for questions in [5, 6, 7] {
        authorize_name(&forgetful, "a").await;
        assert_eq!(server.received_reviews().len(), questions);
    }
}

#[tokio::test]
async fn review_contains_user_and_attributes() {
    let server = WebhookServer::new(true).await;
    let yes = || status_reply(json!({"allowed": true}));
    let old = json!({"apiVersion": "authorization.k8s.io/v1beta1", "kind": "SubjectAccessReview", "status": {"allowed": true}});
    server.set_replies([yes(), yes(), ServerReply::Status(201, old.to_string())]);
    let selectors = RequestSelectors::parse("spec.nodeName=n", "app in (a,b)");
    let resource = ResourceAttributes {
        group: "apps",
        version: "v1",
        resource: "deployments",
        selectors: &selectors,
        ..ResourceAttributes::default()
    };
    let user = alice();
    let (authorizer, path) = (WebhookAuthorizer::new(server.webhook_config()), AttributesTarget::NonResource("/x"));
    authorizer.authorize(&Attributes { user: &user, verb: "list", target: AttributesTarget::Resource(resource) }).await;
    authorizer.authorize(&Attributes { user: &user, verb: "get", target: path }).await;
    let authorizer =
        WebhookAuthorizer::new(WebhookConfig { version: ReviewVersion::V1Beta1, ..server.webhook_config() });
    assert!(authorizer.authorize(&Attributes { user: &user, verb: "get", target: path }).await.is_allowed());
    let [first, second, third] = server.received_reviews().try_into().unwrap();
    assert_eq!(
        first,
        json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
            "status": {"allowed": false},
            "spec": {"user": "alice", "groups": ["devs"], "uid": "u1", "extra": {"scopes": ["x"]}, "resourceAttributes": {
                "verb": "list", "group": "apps", "version": "v1", "resource": "deployments",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
                "labelSelector": {"requirements": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}}}})
    );
    assert_eq!(second["spec"]["nonResourceAttributes"], json!({"path": "/x", "verb": "get"}));
    assert_eq!((&third["spec"]["group"], third["spec"].get("groups")), (&json!(["devs"]), None));
}

#[tokio::test]
async fn request_times_out() {
    let server = WebhookServer::new(true).await;
    server.set_replies([ServerReply::Never]);
    let began = Instant::now();
    let authorizer =
        WebhookAuthorizer::new(WebhookConfig { timeout: Duration::from_millis(50), ..server.webhook_config() });
    assert_eq!(describe_decision(&authorize_name(&authorizer, "p").await).0, "no opinion");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn match_conditions_select_requests() {
    let server = WebhookServer::new(true).await;
    let user = alice();
    let check = async |conditions: &[&str], failure: FailurePolicy, want: (&'static str, &str, bool), calls: usize| {
        let before = server.received_reviews().len();
        server.set_replies((0..calls).map(|_| status_reply(json!({"allowed": true}))));
        let mut errors = Vec::new();
        let conditions = WebhookMatchConditions::compile(conditions.iter().copied(), "x", &mut errors);
        assert_eq!(errors, []);
        let authorizer = WebhookAuthorizer::new(WebhookConfig {
            conditions: Arc::new(conditions),
            failure,
            ..server.webhook_config()
        });
        let (word, reason, failed) = want;
        assert_eq!(describe_decision(&authorize_name(&authorizer, "p").await), (word, reason.to_owned(), failed));
        assert_eq!(server.received_reviews().len() - before, calls, "calls");
    };
    let (open, yes, skipped) = (FailurePolicy::NoOpinion, ("allowed", "", false), ("no opinion", "", false));
    check(&["true"], open, yes, 1).await;
    check(&["request.user == 'alice'", "'devs' in request.groups"], open, yes, 1).await;
    check(&["request.uid == 'u1' && request.extra['scopes'] == ['x']"], open, yes, 1).await;
    check(&["has(request.resourceAttributes) && request.resourceAttributes.namespace == 'a'"], open, yes, 1).await;
    check(&["request.resourceAttributes.group == '' && request.resourceAttributes.subresource == ''"], open, yes, 1)
        .await;
    check(&["!has(request.nonResourceAttributes)"], open, yes, 1).await;
    check(&["!has(request.resourceAttributes.fieldSelector)"], open, yes, 1).await;
    check(&["request.user == 'bob'"], open, skipped, 0).await;
    check(&["true", "request.resourceAttributes.verb == 'list'"], FailurePolicy::Deny, skipped, 0).await;
    check(&["request.nonResourceAttributes.path == '/x'"], open, ("no opinion", "", true), 0).await;
    check(&["request.nonResourceAttributes.path == '/x'"], FailurePolicy::Deny, ("denied", "", true), 0).await;
    check(&["request.nonResourceAttributes.path == '/x'", "false"], FailurePolicy::Deny, skipped, 0).await;
    let authorizer = WebhookAuthorizer::new(WebhookConfig {
        conditions: Arc::new(WebhookMatchConditions::compile(
            ["request.extra['y'] == []"].into_iter(),
            "x",
            &mut Vec::new(),
        )),
        ..server.webhook_config()
    });
    let decision = authorizer
        .authorize(&Attributes { user: &user, verb: "get", target: AttributesTarget::NonResource("/x") })
        .await;
    let why = "cel evaluation error: expression 'request.extra['y'] == []' resulted in error: no such key: y";
    assert_eq!(decision.reason().error(), Some(why));
}
