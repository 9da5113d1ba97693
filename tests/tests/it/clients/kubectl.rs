//! The machine's kubectl, command by command: what it says and what is there afterwards.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
};

use ferry_tests::{TestApiServer, run_command};
use serde_json::Value;

use super::has;

fn server() -> Option<TestApiServer> {
    has("kubectl", "help").then(TestApiServer::start)
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  labels: {team: sea}\ndata:\n  a: one\n";
const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx, ports: [{containerPort: 80}]}]}
";

/// Runs `kubectl` with a manifest as its input and expects what it says.
#[track_caller]
fn says(server: &TestApiServer, line: &str, input: &str, expected: &str) {
    let told = server.kubectl_args(&line.split(' ').collect::<Vec<_>>(), Some(input)).expect_success();
    // Newer versions name the namespace of what they delete.
    assert_eq!(told.trim().replace(" from default namespace", ""), expected, "{line}");
}

#[track_caller]
fn json(server: &TestApiServer, line: &str) -> Value {
    serde_json::from_str(&server.kubectl(&format!("{line} -o json")).expect_success()).expect("kubectl writes JSON")
}

#[test]
fn objects_are_created_read_and_deleted() {
    let Some(server) = server() else { return };
    says(&server, "create -f -", MAP, "configmap/m created");
    let twice = server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_failure();
    assert!(
        twice.contains("Error from server (AlreadyExists)") && twice.contains("configmaps \"m\" already exists"),
        "{twice}"
    );
    let dry = server.kubectl("create configmap m --dry-run=server").expect_failure();
    assert!(dry.contains("already exists"), "{dry}");
    says(&server, "create configmap n --from-literal=x=y --dry-run=server", "", "configmap/n created (server dry run)");
    assert!(server.kubectl("get configmap n").expect_failure().contains("configmaps \"n\" not found"));
    says(&server, "create deployment web --image=nginx", "", "deployment.apps/web created");
    says(&server, "create namespace harbour", "", "namespace/harbour created");
    says(&server, "get -f - -o name", MAP, "configmap/m");
    assert_eq!(server.kubectl("get configmap m -o jsonpath={.data.a}").expect_success(), "one");
    says(&server, "delete configmap m", "", "configmap \"m\" deleted");
    assert!(server.kubectl("delete configmap m").expect_failure().contains("not found"));
    says(&server, "delete configmap m --ignore-not-found", "", "");
    says(&server, "delete deployments --all", "", "deployment.apps \"web\" deleted");
    assert!(server.kubectl("get deployments").stderr_of_success().contains("No resources found"));
}

/// Standard error of a command that succeeded.
trait StderrOfSuccess {
    fn stderr_of_success(self) -> String;
}

impl StderrOfSuccess for ferry_tests::CommandOutput {
    #[track_caller]
    fn stderr_of_success(self) -> String {
        let stderr = self.stderr.clone();
        self.expect_success();
        stderr
    }
}

#[test]
fn objects_are_shown_in_every_form() {
    let Some(server) = server() else { return };
    server.kubectl_args(&["create", "-f", "-"], Some(DEPLOYMENT)).expect_success();
    server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_success();
    let table = server.kubectl("get deployments").expect_success();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = table.lines().map(words).collect();
    assert_eq!(lines[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(lines[1][..4], ["web", "0/2", "0", "0"]);
    let wide = server.kubectl("get deployments -o wide").expect_success();
    assert!(wide.contains("CONTAINERS") && wide.contains("app=web"), "{wide}");
    let yaml = server.kubectl("get deployment web -o yaml").expect_success();
    assert!(yaml.starts_with("apiVersion: apps/v1\nkind: Deployment\n") && yaml.contains("  replicas: 2\n"), "{yaml}");
    assert!(!yaml.contains("managedFields"), "{yaml}");
    let shown = server.kubectl("get deployment web -o yaml --show-managed-fields").expect_success();
    assert!(shown.contains("manager: kubectl-create"), "{shown}");
    assert_eq!(json(&server, "get deployment web")["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    assert_eq!(server.kubectl("get deployments,configmaps -o name -l team=sea").expect_success(), "configmap/m\n");
    let named = server.kubectl("get configmaps -o name --field-selector=metadata.name=m").expect_success();
    assert_eq!(named, "configmap/m\n");
    assert_eq!(server.kubectl("get configmaps -o name -l team!=sea,team").expect_success(), "");
    let refused = server.kubectl("get configmaps --field-selector=data.a=one").expect_failure();
    assert!(refused.contains("\"data.a\" is not a known field selector"), "{refused}");
    let every = server.kubectl("get namespaces --no-headers -o custom-columns=N:.metadata.name").expect_success();
    assert_eq!(
        every.split_whitespace().collect::<Vec<_>>(),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    let pages = server.kubectl("get namespaces -o name --chunk-size=1").expect_success();
    assert_eq!(pages.lines().count(), 4);
    let described = server.kubectl("describe deployment web").expect_success();
    assert!(described.contains("Replicas:") && described.contains("2 desired"), "{described}");
}

#[test]
fn objects_are_applied() {
    let Some(server) = server() else { return };
    says(&server, "apply -f -", DEPLOYMENT, "deployment.apps/web created");
    says(&server, "apply -f -", DEPLOYMENT, "deployment.apps/web unchanged");
    let more = DEPLOYMENT.replace("replicas: 2", "replicas: 3");
    let differs = server.kubectl_args(&["diff", "-f", "-"], Some(&more));
    assert_eq!(differs.code, 1, "{}", differs.stderr);
    assert!(
        differs.stdout.contains("-  replicas: 2") && differs.stdout.contains("+  replicas: 3"),
        "{}",
        differs.stdout
    );
    assert_eq!(server.kubectl_args(&["diff", "-f", "-"], Some(DEPLOYMENT)).code, 0);
    says(&server, "apply -f -", &more, "deployment.apps/web configured");
    assert_eq!(json(&server, "get deployment web")["metadata"]["generation"], 2);
    // What a manifest no longer has goes, and what others wrote stays.
    server.kubectl("scale deployment web --replicas=5").expect_success();
    server.kubectl("label deployment web by=hand").expect_success();
    let without = more.replace(", ports: [{containerPort: 80}]", "").replace("  replicas: 3\n", "");
    says(&server, "apply -f -", &without, "deployment.apps/web configured");
    let web = json(&server, "get deployment web");
    assert!(web.pointer("/spec/template/spec/containers/0/ports").is_none(), "{web}");
    assert_eq!(web["metadata"]["labels"]["by"], "hand");
    says(&server, "apply --server-side -f -", MAP, "configmap/m serverside-applied");
    let other = MAP.replace("one", "two");
    let args = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    let conflict = server.kubectl_args(&args, Some(&other)).expect_failure();
    assert!(conflict.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.a"), "{conflict}");
    server.kubectl_args(&[&args[..], &["--force-conflicts"]].concat(), Some(&other)).expect_success();
    assert_eq!(json(&server, "get configmap m")["data"]["a"], "two");
    says(&server, "delete -f -", DEPLOYMENT, "deployment.apps \"web\" deleted");
}

#[test]
fn objects_are_changed() {
    let Some(server) = server() else { return };
    server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_success();
    server.kubectl_args(&["create", "-f", "-"], Some(DEPLOYMENT)).expect_success();
    let patch = |kind: &str, object: &str, body: &str| {
        server.kubectl_args(&["patch", object, "--type", kind, "-p", body], None).expect_success()
    };
    assert_eq!(patch("merge", "configmap/m", r#"{"data":{"a":null,"b":"2"}}"#).trim(), "configmap/m patched");
    patch(
        "json",
        "configmap/m",
        r#"[{"op":"test","path":"/data/b","value":"2"},{"op":"add","path":"/data/c","value":"3"}]"#,
    );
    assert_eq!(json(&server, "get configmap m")["data"], serde_json::json!({"b": "2", "c": "3"}));
    patch("strategic", "deployment/web", r#"{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"x"}]}}}}"#);
    let containers =
        server.kubectl("get deployment web -o jsonpath={.spec.template.spec.containers[*].name}").expect_success();
    assert_eq!(containers, "d c");
    let failed = server.kubectl_args(
        &["patch", "configmap/m", "--type=json", "-p", r#"[{"op":"test","path":"/data/b","value":"9"}]"#],
        None,
    );
    assert!(failed.expect_failure().contains("The request is invalid"));
    says(&server, "label configmap m tier=front", "", "configmap/m labeled");
    assert!(server.kubectl("label configmap m tier=back").expect_failure().contains("--overwrite is false"));
    says(&server, "label configmap m tier-", "", "configmap/m unlabeled");
    says(&server, "annotate configmap m note=hello", "", "configmap/m annotated");
    let map = json(&server, "get configmap m");
    assert_eq!(map["metadata"]["annotations"]["note"], "hello");
    assert_eq!(map["metadata"]["labels"], serde_json::json!({"team": "sea"}));
    says(&server, "replace -f -", MAP, "configmap/m replaced");
    assert_eq!(json(&server, "get configmap m")["data"], serde_json::json!({"a": "one"}));
    let mut old = map;
    old["data"]["a"] = "old".into();
    let conflict = server.kubectl_args(&["replace", "-f", "-"], Some(&old.to_string())).expect_failure();
    assert!(conflict.contains("the object has been modified"), "{conflict}");
    let invalid =
        server.kubectl_args(&["patch", "deployment/web", "-p", r#"{"spec":{"replicas":-1}}"#], None).expect_failure();
    assert!(invalid.contains("spec.replicas: Invalid value: -1: must be greater than or equal to 0"), "{invalid}");
    says(&server, "set image deployment/web c=nginx:2", "", "deployment.apps/web image updated");
    says(&server, "scale deployment web --replicas=7", "", "deployment.apps/web scaled");
    assert_eq!(json(&server, "get deployment web")["spec"]["replicas"], 7);
}

#[test]
fn objects_are_edited() {
    let Some(server) = server() else { return };
    server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_success();
    let editor = server.file("editor");
    std::fs::write(&editor, "#!/bin/sh\nsed -i 's/a: one/a: edited/' \"$1\"\n").expect("written");
    std::fs::set_permissions(&editor, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let edit =
        || run_command(server.prepared("kubectl", &["edit", "configmap", "m"]).env("KUBE_EDITOR", &editor), None);
    assert_eq!(edit().expect_success().trim(), "configmap/m edited");
    assert_eq!(json(&server, "get configmap m")["data"]["a"], "edited");
    assert!(edit().stderr_of_success().contains("no changes made"));
}

#[test]
fn the_server_describes_itself() {
    let Some(server) = server() else { return };
    let told = server.kubectl("explain deployment.spec.replicas").expect_success();
    assert!(told.contains("FIELD: replicas <integer>") && told.contains("GROUP:      apps"), "{told}");
    let told = server.kubectl("explain pods.spec.containers --recursive").expect_success();
    assert!(told.contains("livenessProbe\t<Probe>") && told.contains("-required-"), "{told}");
    let resources = server.kubectl("api-resources --no-headers").expect_success();
    let find = |name: &str| {
        let line = resources.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(find("deployments"), ["deployments", "deploy", "apps/v1", "true", "Deployment"]);
    assert_eq!(find("nodes"), ["nodes", "no", "v1", "false", "Node"]);
    let verbs = server.kubectl("api-resources --verbs=list,delete --namespaced=false -o name").expect_success();
    assert!(verbs.lines().any(|line| line == "clusterroles.rbac.authorization.k8s.io"), "{verbs}");
    let versions = server.kubectl("api-versions").expect_success();
    let versions: Vec<&str> = versions.lines().collect();
    assert!(versions.contains(&"apps/v1") && versions.contains(&"v1") && !versions.contains(&"apps/v1beta1"));
    let version: Value = serde_json::from_str(&server.kubectl("version -o json").expect_success()).expect("JSON");
    assert_eq!((&version["serverVersion"]["major"], &version["serverVersion"]["minor"]), (&"1".into(), &"36".into()));
    let info = server.kubectl("cluster-info").expect_success();
    assert!(info.contains("is running at") && info.contains("https://127.0.0.1:"), "{info}");
    let who = server.kubectl("auth whoami -o json").expect_success();
    let who: Value = serde_json::from_str(&who).expect("JSON");
    assert_eq!(who["status"]["userInfo"]["username"], "admin");
    assert_eq!(who["status"]["userInfo"]["groups"], serde_json::json!(["system:masters", "system:authenticated"]));
    assert_eq!(server.kubectl("auth can-i create pods").expect_success().trim(), "yes");
    assert_eq!(server.kubectl("get --raw /readyz").expect_success(), "ok");
}

#[test]
fn waiting_ends_when_it_should() {
    let Some(server) = server() else { return };
    server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_success();
    let wait = server.prepared("kubectl", &["wait", "--for=jsonpath={.data.a}=two", "configmap/m", "--timeout=60s"]);
    let waiting = spawn(wait);
    server.kubectl_args(&["patch", "configmap/m", "-p", r#"{"data":{"a":"two"}}"#], None).expect_success();
    assert_eq!(finished(waiting).trim(), "configmap/m condition met");
    let waiting = spawn(server.prepared("kubectl", &["wait", "--for=delete", "configmap/m", "--timeout=60s"]));
    server.kubectl("delete configmap m").expect_success();
    // One that begins to wait only after the deletion has nothing to say.
    assert!(["", "configmap/m condition met"].contains(&finished(waiting).trim()));
    server.kubectl_args(&["create", "-f", "-"], Some(DEPLOYMENT)).expect_success();
    let late = server.kubectl("wait --for=condition=Available deployment/web --timeout=1s").expect_failure();
    assert!(late.contains("timed out waiting for the condition"), "{late}");
}

#[test]
fn changes_are_followed() {
    let Some(server) = server() else { return };
    server.kubectl_args(&["create", "-f", "-"], Some(MAP)).expect_success();
    let args = ["get", "configmaps", "-w", "-l", "team=sea", "--output-watch-events", "-o"];
    let columns = "custom-columns=T:.type,N:.object.metadata.name,A:.object.data.a";
    let mut watching =
        KubectlProcess(spawn(server.prepared("kubectl", &[&args[..], &[columns, "--no-headers"]].concat())));
    let mut lines = BufReader::new(watching.0.stdout.take().expect("piped")).lines();
    let mut next = || {
        let line = lines.next().expect("a line").expect("text");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(next(), ["ADDED", "m", "one"]);
    server.kubectl_args(&["patch", "configmap/m", "-p", r#"{"data":{"a":"two"}}"#], None).expect_success();
    assert_eq!(next(), ["MODIFIED", "m", "two"]);
    server.kubectl("label configmap m --overwrite team=land").expect_success();
    assert_eq!(next(), ["DELETED", "m", "two"]);
    server.kubectl("label configmap m --overwrite team=sea").expect_success();
    assert_eq!(next(), ["ADDED", "m", "two"]);
    server.kubectl("delete configmap m").expect_success();
    assert_eq!(next(), ["DELETED", "m", "two"]);
}

#[test]
fn events_are_shown() {
    let Some(server) = server() else { return };
    let event =
        "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ntype: Warning\nreason: Leaking\nmessage: the hull leaks
involvedObject: {apiVersion: v1, kind: ConfigMap, name: m, namespace: default}
firstTimestamp: 2026-01-01T00:00:00Z\nlastTimestamp: 2026-01-01T00:00:00Z\ncount: 3\n";
    server.kubectl_args(&["create", "-f", "-"], Some(event)).expect_success();
    let shown = server.kubectl("events").expect_success();
    let line = shown.lines().nth(1).expect("a line");
    assert!(["Warning", "Leaking", "ConfigMap/m", "the hull leaks"].iter().all(|part| line.contains(part)), "{shown}");
    assert!(server.kubectl("events --types=Normal").stderr_of_success().contains("No events found"));
    assert!(server.kubectl("events --for configmap/m").expect_success().contains("Leaking"));
    assert!(server.kubectl("get events --field-selector=reason=Leaking").expect_success().contains("the hull leaks"));
}

#[test]
fn the_proxy_passes_requests_on() {
    let Some(server) = server() else { return };
    let mut proxy = KubectlProcess(spawn(server.prepared("kubectl", &["proxy", "--port=0"])));
    let mut line = String::new();
    BufReader::new(proxy.0.stdout.take().expect("piped")).read_line(&mut line).expect("it says where");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("the proxy listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    };
    assert!(ask("/api/v1/namespaces/default").contains("\"name\":\"default\""));
    assert!(ask("/healthz").ends_with("\r\n\r\nok"));
    assert!(ask("/api/v1/namespaces/none").starts_with("HTTP/1.1 404 "));
}

/// A program that is ended when it is no longer needed.
struct KubectlProcess(Child);

impl Drop for KubectlProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(mut command: std::process::Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts")
}

#[track_caller]
fn finished(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
