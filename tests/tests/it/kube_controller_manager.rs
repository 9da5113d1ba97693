//! The controller manager alone, under its upstream name, beside the API server: what it does, that it goes on after
//! `kill -9`, leader election, and its HTTPS endpoint.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ferry_tests::{CommandOutput, TestApiServer, eventually, machine, run_command};

/// A controller manager, until it is dropped.
pub struct ControllerManager {
    child: Child,
    port: u16,
}

impl ControllerManager {
    pub fn start(server: &TestApiServer, name: &str, flags: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let log = File::create(server.file(&format!("{name}.log"))).expect("a log");
        let mut command = Command::new(machine::built_program("ferry"));
        command.args(["kube-controller-manager", "--bind-address=127.0.0.1"]);
        command.arg(format!("--kubeconfig={}", server.kubeconfig().display()));
        command.arg(format!("--secure-port={port}")).args(flags);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Self { child: command.spawn().expect("ferry starts"), port }
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A GET of its HTTPS endpoint as `admin` or as `anyone`, whose password counts for nothing.
    fn get(&self, directory: &Path, user: &str, path: &str) -> CommandOutput {
        let file = directory.join(format!("endpoint-{}.kubeconfig", self.port));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: {user}}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: admin, user: {{client-certificate: {1}/admin.crt, client-key: {1}/admin.key}}}}, {{name: anyone, user: {{username: ignored, password: ignored}}}}]\n",
            self.port,
            directory.display()
        );
        fs::write(&file, text).expect("written");
        run_command(Command::new("kubectl").args(["get", "--raw", path]).env("KUBECONFIG", &file), None)
    }
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pods(server: &TestApiServer) -> usize {
    server.kubectl("get pods -o name -l app=web").expect_success().lines().count()
}

#[track_caller]
fn expect_pods(server: &TestApiServer, count: usize) {
    eventually(&format!("{count} pods"), || match pods(server) {
        found if found == count => Ok(()),
        found => Err(format!("{found} pods")),
    });
}

#[test]
fn deployment_is_reconciled_and_a_killed_manager_goes_on() {
    let server = TestApiServer::start();
    let mut manager = ControllerManager::start(&server, "first", &["--leader-elect=false"]);
    server.kubectl("create deployment web --image=example.com/web --replicas=3").expect_success();
    expect_pods(&server, 3);
    manager.kill();
    server.kubectl("scale deployment web --replicas=5").expect_success();
    server.kubectl("delete pods -l app=web --wait=false").expect_success();
    let _manager = ControllerManager::start(&server, "second", &["--leader-elect=false"]);
    expect_pods(&server, 5);
    server.kubectl("delete deployment web --cascade=foreground --timeout=60s").expect_success();
    expect_pods(&server, 0);
}

#[test]
fn a_second_manager_takes_over_from_one_that_was_killed() {
    let server = TestApiServer::start();
    let flags =
        ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"];
    let holder =
        || server.kubectl("get lease -n kube-system kube-controller-manager -o jsonpath={.spec.holderIdentity}");
    let mut first = ControllerManager::start(&server, "first", &flags);
    eventually("a leader", || match holder().stdout {
        identity if identity.is_empty() => Err("no holder".to_owned()),
        _ => Ok(()),
    });
    let leader = holder().expect_success();
    let _second = ControllerManager::start(&server, "second", &flags);
    server.kubectl("create deployment web --image=example.com/web --replicas=2").expect_success();
    expect_pods(&server, 2);
    assert_eq!(holder().expect_success(), leader, "the second manager waits");
    first.kill();
    server.kubectl("scale deployment web --replicas=4").expect_success();
    expect_pods(&server, 4);
    assert_ne!(holder().expect_success(), leader);
}

/// The requests that the API server has served, by verb, resource and subresource. Watches are renewed now and then, and
/// the API server renews a lease of its own.
fn served_requests(server: &TestApiServer) -> BTreeMap<String, u64> {
    let metrics = server.kubectl("get --raw /metrics").expect_success();
    let mut counts = BTreeMap::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let (labels, count) = line.rsplit_once("} ").expect("labels and a count");
        let label = |name: &str| {
            let start = labels.find(&format!("{name}=\"")).map(|start| start + name.len() + 2);
            start.and_then(|start| labels[start..].split('"').next()).unwrap_or_default().to_owned()
        };
        let (verb, resource) = (label("verb"), label("resource"));
        if verb != "WATCH" && !resource.is_empty() && resource != "leases" {
            let key = format!("{verb} {resource}/{}", label("subresource"));
            *counts.entry(key).or_default() += count.parse::<f64>().expect("a number") as u64;
        }
    }
    counts
}

#[test]
fn manager_at_rest_sends_no_request() {
    let server = TestApiServer::start();
    let _manager = ControllerManager::start(&server, "manager", &["--leader-elect=false"]);
    for number in 0..10 {
        let name = format!("web-{number}");
        server.kubectl(&format!("create deployment {name} --image=example.com/web --replicas=2")).expect_success();
        server.kubectl(&format!("expose deployment {name} --port=80")).expect_success();
    }
    eventually("all pods", || match server.kubectl("get pods -o name").expect_success().lines().count() {
        20 => Ok(()),
        found => Err(format!("{found} pods")),
    });
    server.kubectl("create job once --image=example.com/once").expect_success();
    server.kubectl("create quota small --hard=pods=100,services=100").expect_success();
    server.kubectl("create poddisruptionbudget all --selector=app --min-available=1").expect_success();
    server
        .kubectl_args(&["create", "cronjob", "yearly", "--image=example.com/once", "--schedule=0 0 1 1 *"], None)
        .expect_success();
    expect_rest(&server);
}

/// Waits until no request is sent for a time, and fails if one is sent afterwards.
#[track_caller]
pub fn expect_rest(server: &TestApiServer) {
    let observed = Duration::from_secs(5);
    let mut before = served_requests(server);
    eventually("a time without requests", || {
        std::thread::sleep(observed);
        let now = served_requests(server);
        match now == before {
            true => Ok(()),
            false => Err(format!("{:?} became {now:?}", std::mem::replace(&mut before, now.clone()))),
        }
    });
    std::thread::sleep(observed * 2);
    assert_eq!(served_requests(server), before, "nothing happens, and requests are sent");
}

/// The audit events of writes by a user, but for leases and events: when each was received, in order.
fn audited_writes(log: &Path, user: &str) -> Vec<String> {
    let text = fs::read_to_string(log).expect("an audit log");
    let events = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let is_write = |event: &serde_json::Value| {
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        event["user"]["username"] == user
            && !matches!(event["verb"].as_str(), Some("get" | "list" | "watch") | None)
            && !matches!(resource, "leases" | "events")
    };
    let received = |event: serde_json::Value| event["requestReceivedTimestamp"].as_str().unwrap_or_default().to_owned();
    let mut times: Vec<String> = events.filter(is_write).map(received).collect();
    times.sort();
    times
}

/// A manager with credentials of its own, so that the audit log tells who wrote.
fn start_as(server: &TestApiServer, user: &str) -> ControllerManager {
    let own = format!("--kubeconfig={}", server.add_administrator(user).display());
    ControllerManager::start(server, user, &[own.as_str()])
}

fn signal(manager: &ControllerManager, name: &str) {
    let pid = manager.child.id().to_string();
    run_command(Command::new("kill").args([name, &pid]), None).expect_success();
}

#[test]
fn paused_leader_is_replaced_in_time_and_writes_nothing_afterwards() {
    let policy =
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    let files = tempfile::tempdir().expect("a directory");
    let (policy_file, log) = (files.path().join("policy.yaml"), files.path().join("audit.log"));
    fs::write(&policy_file, policy).expect("written");
    let server = TestApiServer::start_with(&[
        format!("--audit-policy-file={}", policy_file.display()),
        format!("--audit-log-path={}", log.display()),
    ]);
    // Upstream's durations: a lease of 15 s.
    let first = start_as(&server, "manager-a");
    let lease = "get lease -n kube-system kube-controller-manager -o jsonpath={.spec.holderIdentity}";
    let holder = || server.kubectl(lease).stdout;
    eventually("a leader", || if holder().is_empty() { Err("no holder".to_owned()) } else { Ok(()) });
    let leader = holder();
    let _second = start_as(&server, "manager-b");
    server.kubectl("create deployment web --image=example.com/web --replicas=3").expect_success();
    expect_pods(&server, 3);

    signal(&first, "-STOP");
    let paused = Instant::now();
    server.kubectl("scale deployment web --replicas=6").expect_success();
    eventually("another leader", || if holder() == leader { Err("the same".to_owned()) } else { Ok(()) });
    let taken_over = paused.elapsed();
    expect_pods(&server, 6);
    // What it finds when it goes on would have it write at once.
    server.kubectl("delete pods -l app=web --wait=false").expect_success();
    signal(&first, "-CONT");
    expect_pods(&server, 6);
    server.kubectl("scale deployment web --replicas=2").expect_success();
    expect_pods(&server, 2);

    assert!(taken_over < Duration::from_secs(16), "taken over after {taken_over:?}");
    let (of_first, of_second) = (audited_writes(&log, "manager-a"), audited_writes(&log, "manager-b"));
    let (last, began) = (of_first.last().expect("it led"), of_second.first().expect("it led"));
    assert!(last < began, "two leaders act: one until {last}, the other from {began}");
}

#[test]
fn endpoint_serves_health_to_all_and_metrics_to_those_who_may() {
    let server = TestApiServer::start_with(&["--authorization-mode=RBAC".into()]);
    let manager = ControllerManager::start(&server, "manager", &[]);
    let directory = server.file("");
    eventually("the endpoint is healthy", || {
        let output = manager.get(&directory, "anyone", "/healthz").stdout;
        if output == "ok" { Ok(()) } else { Err(output) }
    });
    let checks = manager.get(&directory, "anyone", "/healthz?verbose").stdout;
    assert!(checks.contains("[+]leaderElection ok\n"), "{checks}");
    let refused = manager.get(&directory, "anyone", "/metrics").expect_failure();
    assert!(refused.contains("system:anonymous"), "{refused}");
    eventually("metrics for an administrator", || {
        let metrics = manager.get(&directory, "admin", "/metrics").stdout;
        let has_queue = metrics.contains("workqueue_adds_total{name=\"deployment-controller\"}");
        if has_queue { Ok(()) } else { Err(metrics) }
    });
    let configuration = manager.get(&directory, "admin", "/configz").expect_success();
    assert!(configuration.contains("\"TerminatedPodGCThreshold\":12500"), "{configuration}");
}

#[test]
fn recycled_volume_is_available_again() {
    const OBJECTS: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: old}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Recycle, storageClassName: manual, hostPath: {path: /tmp/none}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: user}
spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
"#;
    let server = TestApiServer::start();
    let _manager = ControllerManager::start(&server, "manager", &["--leader-elect=false"]);
    eventually("a service account", || match server.kubectl("get serviceaccount default").stderr {
        error if error.is_empty() => Ok(()),
        error => Err(error),
    });
    server.kubectl_args(&["create", "-f", "-"], Some(OBJECTS)).expect_success();
    let expect_phase = |wanted: &str| {
        eventually(wanted, || match server.kubectl("get pv old -o jsonpath={.status.phase}").stdout {
            phase if phase == wanted => Ok(()),
            phase => Err(phase),
        });
    };
    expect_phase("Bound");
    server.kubectl("delete pvc user").expect_success();
    eventually("a recycler pod", || match server.kubectl("get pod recycler-for-old").stderr {
        error if error.is_empty() => Ok(()),
        error => Err(error),
    });
    expect_phase("Released");
    let succeeded = r#"{"status": {"phase": "Succeeded"}}"#;
    let patch = ["patch", "pod", "recycler-for-old", "--subresource=status", "-p", succeeded];
    server.kubectl_args(&patch, None).expect_success();
    expect_phase("Available");
    let events = server.kubectl("get events -o jsonpath={.items[*].reason}").expect_success();
    assert!(events.contains("VolumeRecycled"), "{events}");
    let left = server.kubectl("get pod recycler-for-old --ignore-not-found -o name").expect_success();
    assert!(left.is_empty(), "{left}");
}

#[test]
fn wrong_flags_are_refused_by_name() {
    let run = |args: &[&str]| {
        run_command(Command::new(machine::built_program("ferry")).arg("kube-controller-manager").args(args), None)
    };
    assert!(run(&["--no-such-flag"]).expect_failure().contains("unknown flag: --no-such-flag"));
    assert!(run(&[]).expect_failure().contains("--kubeconfig"));
    let unknown = run(&["--kubeconfig=/none", "--controllers=*,nothing"]).expect_failure();
    assert!(unknown.contains("\"nothing\" is not in the list of known controllers"), "{unknown}");
    assert!(run(&["--help"]).expect_success().contains("--concurrent-job-syncs int"));
}
