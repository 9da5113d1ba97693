//! Elections against a fake API server that stores one lease with optimistic concurrency, on paused time.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// The server's state: the stored lease, the messages of recorded events, and whether requests fail.
#[derive(Clone, Default)]
struct FakeServer {
    lease: Arc<Mutex<Option<Value>>>,
    events: Arc<Mutex<Vec<String>>>,
    down: Arc<AtomicBool>,
}

impl FakeServer {
    fn client(&self) -> Client {
        let server = self.clone();
        crate::transport::in_process_client(
            tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { server.handle(request).await }
            }),
            "test",
        )
    }

    async fn handle(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
        if head.uri.path().ends_with("/events") {
            self.events.lock().unwrap().push(body["message"].as_str().unwrap_or_default().to_owned());
            return respond(StatusCode::CREATED, body);
        }
        assert!(head.uri.path().starts_with("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"));
        if self.down.load(Ordering::SeqCst) {
            return respond(StatusCode::SERVICE_UNAVAILABLE, status(503, "ServiceUnavailable"));
        }
        let mut lease = self.lease.lock().unwrap();
        let version = |lease: &Option<Value>| lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match head.method.as_str() {
            "GET" => match lease.clone() {
                Some(lease) => respond(StatusCode::OK, lease),
                None => respond(StatusCode::NOT_FOUND, status(404, "NotFound")),
            },
            "POST" if lease.is_some() => respond(StatusCode::CONFLICT, status(409, "AlreadyExists")),
            "PUT" if version(&lease) != Some(body["metadata"]["resourceVersion"].clone()) => {
                respond(StatusCode::CONFLICT, status(409, "Conflict"))
            }
            _ => {
                let next = version(&lease).and_then(|old| old.as_str()?.parse::<u64>().ok()).unwrap_or(0) + 1;
                let mut stored = body;
                stored["metadata"]["resourceVersion"] = json!(next.to_string());
                *lease = Some(stored.clone());
                respond(StatusCode::OK, stored)
            }
        }
    }

    fn spec(&self) -> Value {
        self.lease.lock().unwrap().as_ref().map(|lease| lease["spec"].clone()).unwrap_or_default()
    }

    fn holder(&self) -> String {
        self.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

fn respond(code: StatusCode, body: Value) -> Result<Response<Body>, tower::BoxError> {
    let mut response = Response::new(Body::from(serde_json::to_vec(&body)?));
    *response.status_mut() = code;
    Ok(response)
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
}

/// A candidate whose work counts terms and records whether it runs.
struct Candidate {
    shutdown: CancellationToken,
    terms: Arc<AtomicUsize>,
    leads: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: &FakeServer, identity: &str) -> Candidate {
    let elector = LeaderElector::new(server.client(), "tester", LeaderElectionConfig::new("tester", identity));
    let (shutdown, terms, leads) = (CancellationToken::new(), Arc::default(), Arc::default());
    let (token, counter, flag): (_, Arc<AtomicUsize>, Arc<AtomicBool>) =
        (shutdown.clone(), Arc::clone(&terms), Arc::clone(&leads));
    let task = tokio::spawn(elector.run(token, move |term| {
        let flag = flag.clone();
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            flag.store(true, Ordering::SeqCst);
            term.cancelled().await;
            // Winding down takes a moment, during which the lease is still held.
            tokio::time::sleep(Duration::from_secs(3)).await;
            flag.store(false, Ordering::SeqCst);
        }
    }));
    Candidate { shutdown, terms, leads, task }
}

impl Candidate {
    fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn single_candidate_acquires_an_absent_lease_at_once() {
    let server = FakeServer::default();
    let candidate = start(&server, "a");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(candidate.leads());
    let spec = server.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("a"), &json!(15)));
    assert_eq!(spec["leaseTransitions"], 0);
    assert_eq!(*server.events.lock().unwrap(), ["a became leader"]);
    let renewed = spec["renewTime"].clone();
    pass(30).await;
    assert!(candidate.leads());
    assert_ne!(server.spec()["renewTime"], renewed);
    assert_eq!(server.spec()["acquireTime"], spec["acquireTime"]);
}

#[tokio::test(start_paused = true)]
async fn second_candidate_waits_and_takes_over_a_released_lease() {
    let server = FakeServer::default();
    let mut first = start(&server, "a");
    pass(1).await;
    let second = start(&server, "b");
    pass(60).await;
    assert!(first.leads() && !second.leads());
    first.shutdown.cancel();
    (&mut first.task).await.unwrap();
    assert!(!first.leads());
    pass(5).await;
    assert!(second.leads());
    assert_eq!((server.holder().as_str(), &server.spec()["leaseTransitions"]), ("b", &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_dead_holder_is_taken_over_after_the_lease_duration() {
    let server = FakeServer::default();
    let first = start(&server, "a");
    pass(1).await;
    first.task.abort();
    let second = start(&server, "b");
    pass(14).await;
    assert!(!second.leads());
    pass(6).await;
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_dead_holder_is_taken_over_within_its_duration_after_the_kill() {
    let server = FakeServer::default();
    let first = start(&server, "a");
    let second = start(&server, "b");
    tokio::time::sleep(Duration::from_millis(21_500)).await;
    // The lease was renewed at most a retry period ago.
    let (dead, alive) = if first.leads() { (first, second) } else { (second, first) };
    dead.task.abort();
    pass(15).await;
    assert!(alive.leads());
}

#[tokio::test(start_paused = true)]
async fn fence_refuses_writes_without_a_lease_and_lets_reads_pass() {
    let server = FakeServer::default();
    let elector = LeaderElector::new(server.client(), "tester", LeaderElectionConfig::new("tester", "a"));
    let fence = elector.fence();
    let leases: Api<Lease> = Api::namespaced(fence.guard(server.client()), "kube-system");
    let create = || async {
        let lease = Lease { metadata: ObjectMeta { name: Some("other".into()), ..Default::default() }, spec: None };
        leases.create(&PostParams::default(), &lease).await
    };
    assert!(create().await.unwrap_err().is_not_leader());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(elector.run(shutdown.clone(), |term| async move { term.cancelled().await }));
    pass(60).await;
    // The fake server has one lease: the write gets there and is refused.
    assert!(create().await.unwrap_err().is_already_exists() && fence.is_open());
    // A paused process renews nothing and hears nothing.
    task.abort();
    pass(13).await;
    assert!(fence.is_open());
    pass(3).await;
    assert!(!fence.is_open());
    assert!(create().await.unwrap_err().is_not_leader());
    assert!(leases.get("tester").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn expiry_is_measured_by_the_local_clock() {
    let server = FakeServer::default();
    // The holder's clock is a year behind: its renew time looks expired.
    let spec = json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 4,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "tester", "namespace": "kube-system", "resourceVersion": "7"}, "spec": spec});
    *server.lease.lock().unwrap() = Some(lease);
    let candidate = start(&server, "b");
    pass(10).await;
    assert!(!candidate.leads());
    pass(10).await;
    assert!(candidate.leads());
    assert_eq!(server.spec()["leaseTransitions"], 5);
}

#[tokio::test(start_paused = true)]
async fn restarted_instance_with_the_same_identity_leads_at_once() {
    let server = FakeServer::default();
    let killed = start(&server, "a");
    pass(1).await;
    killed.task.abort();
    let restarted = start(&server, "a");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(restarted.leads());
    assert_eq!(server.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn leader_without_api_server_stops_before_the_lease_expires_and_leads_again_later() {
    let server = FakeServer::default();
    let candidate = start(&server, "a");
    pass(1).await;
    server.down.store(true, Ordering::SeqCst);
    pass(12).await;
    assert!(candidate.terms.load(Ordering::SeqCst) == 1);
    pass(4).await;
    assert!(!candidate.leads());
    server.down.store(false, Ordering::SeqCst);
    pass(10).await;
    assert!(candidate.leads());
    assert_eq!(candidate.terms.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn single_candidate_acquires_soon_after_the_namespace_appears() {
    let server = FakeServer::default();
    server.down.store(true, Ordering::SeqCst);
    let candidate = start(&server, "a");
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(candidate.leads());
}

#[test]
fn identity_is_stable_per_file() {
    let path = std::env::temp_dir().join(format!("ferry-identity-{:x}", fastrand::u64(..)));
    let first = stable_identity(&path, "host").unwrap();
    assert!(first.starts_with("host_") && first.len() == "host_".len() + 32, "{first}");
    assert_eq!(stable_identity(&path, "other").unwrap(), first);
    fs::remove_file(&path).unwrap();
}
