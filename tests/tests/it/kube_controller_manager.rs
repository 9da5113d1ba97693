//! The controller manager alone, under its upstream name, beside the API server: what it does, that it goes on after
//! `kill -9`, leader election, and its HTTPS endpoint.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use ferry_tests::{CommandOutput, TestApiServer, eventually, machine, run_command};

/// A controller manager, until it is dropped.
struct ControllerManager {
    child: Child,
    port: u16,
}

impl ControllerManager {
    fn start(server: &TestApiServer, name: &str, flags: &[&str]) -> Self {
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
    fn kill(&mut self) {
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

#[test]
fn endpoint_serves_health_to_all_and_metrics_to_those_who_may() {
    let server = TestApiServer::start_with(&["--authorization-mode=RBAC".into()]);
    let manager = ControllerManager::start(&server, "manager", &["--leader-elect=false"]);
    let directory = server.file("");
    eventually("the endpoint is healthy", || {
        let output = manager.get(&directory, "anyone", "/healthz").stdout;
        if output == "ok" { Ok(()) } else { Err(output) }
    });
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
