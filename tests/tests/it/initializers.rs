//! Initializers with the real kubectl: what they hide, and the three examples at work.

use std::process::{Child, Command, Stdio};

use ferry_tests::{TestApiServer, TestCluster, TestHost, eventually, machine, skip_reason};
use serde_json::{Value, json};

/// A program that ends with the test.
struct InitializerProcess(Child);

impl InitializerProcess {
    fn start(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the program starts"))
    }
}

impl Drop for InitializerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A configuration that lets initializers look at a resource.
fn configuration(resource: &str, names: &[&str]) -> String {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
    let initializers: Vec<Value> = names.iter().map(|name| json!({"name": name, "rules": [rule]})).collect();
    json!({"apiVersion": "admissionregistration.k8s.io/v1alpha1", "kind": "InitializerConfiguration",
        "metadata": {"name": resource}, "initializers": initializers})
    .to_string()
}

fn pod(namespace: &str, name: &str, port: u16) -> String {
    let container = json!({"name": "c", "image": "nginx", "ports": [{"containerPort": port}]});
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}).to_string()
}

#[test]
fn three_examples_initialize() {
    let server = TestApiServer::start_with(&["--enable-initializers".to_owned()]);
    let create = |text: &str| server.kubectl_args(&["create", "-f", "-"], Some(text));
    eventually("the API is served", || match server.kubectl("get namespaces") {
        answered if answered.code == 0 => Ok(()),
        refused => Err(refused.stderr),
    });
    for namespace in ["default", "safe"] {
        if namespace != "default" {
            server.kubectl(&format!("create namespace {namespace}")).expect_success();
        }
        server.kubectl(&format!("create serviceaccount default --namespace={namespace}")).expect_success();
    }
    create(&configuration("pods", &["sidecar.example.com", "certificate.example.com"])).expect_success();
    create(&configuration("secrets", &["long-secrets.example.com"])).expect_success();
    let start =
        |name: &str, args: &[&str]| InitializerProcess::start(server.prepared(machine::built_program(name), args));
    let _sidecar = start("example-sidecar", &["--image=side"]);
    let _certificate = start("example-certificate", &["--namespace=safe", "--secret=tls"]);
    let _long = start("example-long-secrets", &[]);
    let short = server.kubectl("create secret generic short --from-literal=password=letmein").expect_failure();
    let why = "secret \"short\": password has 7 characters, and must have 20 at least";
    assert!(short.contains(why), "{short}");
    assert!(server.kubectl("get secret short").expect_failure().contains("not found"));
    server.kubectl("create secret generic long --from-literal=password=correct-horse-battery-staple").expect_success();
    server.kubectl("get secret long").expect_success();
    for (namespace, port, containers, mounted) in
        [("default", 80, "c sidecar", false), ("default", 8080, "c", false), ("safe", 8080, "c", true)]
    {
        let name = format!("p{port}");
        create(&pod(namespace, &name, port)).expect_success();
        let query = format!("get pod {name} --namespace={namespace} -o=jsonpath=");
        let names = server.kubectl(&format!("{query}{{.spec.containers[*].name}}")).expect_success();
        assert_eq!(names, containers, "{namespace} {port}");
        let volume = server.kubectl(&format!("{query}{{.spec.volumes[?(@.name==\"certificate\")].secret.secretName}}"));
        assert_eq!(volume.expect_success() == "tls", mounted, "{namespace} {port}");
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn a_pod_is_hidden_until_it_is_initialized() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up_with(TestHost::new(), &["--enable-initializers"]);
    let create = |text: &str| cluster.kubectl_args(&["create", "-f", "-"], Some(text));
    create(&configuration("pods", &["sidecar.example.com"])).expect_success();
    // Nobody is there to look at it: the creation gives up, the pod stays.
    let late =
        cluster.kubectl_args(&["run", "web", "--image=nginx", "--port=80", "--labels=app=web"], None).expect_failure();
    assert!(late.contains("server has timed out waiting for the initialization of pods web"), "{late}");
    assert_eq!(cluster.kubectl("get pods").stdout, "");
    assert!(cluster.kubectl("get pod web").expect_failure().contains("pods \"web\" not found"));
    let all = cluster.kubectl(&format!("get --raw {PODS}?includeUninitialized=true")).expect_success();
    let all: Value = serde_json::from_str(&all).expect("a list");
    let hidden = &all["items"][0];
    assert_eq!(hidden["metadata"]["initializers"]["pending"], json!([{"name": "sidecar.example.com"}]));
    assert_eq!(hidden["spec"].get("nodeName"), None, "it is not scheduled");
    nobody_else_acts(&cluster, hidden);
    // What the configuration does not name goes on.
    cluster.kubectl("create configmap free").expect_success();
    let sidecar = cluster.prepared(machine::built_program("example-sidecar"), &["--image=nginx"]);
    let _sidecar = InitializerProcess::start(sidecar);
    let pods = cluster.running("app=web", 1);
    let containers = pods[0]["spec"]["containers"].as_array().map(Vec::len);
    assert_eq!((containers, pods[0]["metadata"].get("initializers")), (Some(2), None));
    cluster.kubectl("create deployment many --image=nginx --port=80 --replicas=2").expect_success();
    let pods = cluster.running("app=many", 2);
    assert!(pods.iter().all(|pod| pod["spec"]["containers"].as_array().is_some_and(|list| list.len() == 2)));
}

/// Users with write access to pods cannot write this one.
fn nobody_else_acts(cluster: &TestCluster, pod: &Value) {
    cluster.kubectl("create clusterrolebinding eve --clusterrole=edit --user=eve").expect_success();
    let mut bare = pod.clone();
    if let Some(metadata) = bare["metadata"].as_object_mut() {
        metadata.remove("initializers");
    }
    let path = format!("{PODS}/web");
    let said = cluster
        .kubectl_args(&["--as=eve", "replace", "--raw", &path, "-f", "-"], Some(&bare.to_string()))
        .expect_failure();
    assert!(said.contains("update to uninitialized resource denied"), "{said}");
}
