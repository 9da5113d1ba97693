//! A cluster with everything that Cluster API's manifests bring, and its manager as a process that finds what a pod would:
//! the token of its service account, the cluster's authority and its namespace.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use ferry_tests::{
    CommandOutput, TestCa, TestCluster, eventually, run_command,
    upstream::{self, HostDaemon},
};
use serde_json::{Value, json};

/// The host's own address: a slice must not lead to loopback.
const ADDRESS: &str = "192.0.2.2";
/// Kinds of manifests that are not applied: the manager is a process here, and its certificate is the test's.
const LEFT_OUT: [&str; 3] = ["Deployment", "Certificate", "Issuer"];
/// A provider of infrastructure has kinds of its own; these only stand there.
const PROVIDED: [&str; 3] = ["BoatCluster", "BoatMachine", "BoatMachineTemplate"];

pub struct ClusterApiTest {
    pub cluster: TestCluster,
    program: PathBuf,
}

impl ClusterApiTest {
    /// A cluster with the manifests of the module, whose webhooks have no endpoint yet.
    pub fn start(program: PathBuf) -> Self {
        let world = Self { cluster: TestCluster::up(), program };
        let manifests = upstream::module_dir("cluster-api", "sigs.k8s.io/cluster-api").join("core/config/default");
        let text = world.cluster.kubectl(&format!("kustomize {}", manifests.display())).expect_success();
        let left_out = |document: &&str| !LEFT_OUT.iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")));
        let kept: Vec<&str> = text.split("\n---\n").filter(left_out).collect();
        world
            .cluster
            .kubectl_args(&["apply", "--server-side", "-f", "-"], Some(&kept.join("\n---\n")))
            .expect_success();
        world.trust_the_webhooks();
        world.apply(&slice()).expect_success();
        PROVIDED.iter().for_each(|kind| drop(world.apply(&provided(kind)).expect_success()));
        world.cluster.kubectl("wait crd --all --for=condition=Established --timeout=90s").expect_success();
        world
    }

    /// Issues a certificate for the service and sets the CA bundle of its webhooks, as cert-manager does.
    fn trust_the_webhooks(&self) {
        let host = &self.cluster.host;
        let hooks = host.file("hooks");
        fs::create_dir(&hooks).expect("a directory");
        TestCa::new(&hooks, "ca").issue("tls", "servers", &["capi-webhook-service.capi-system.svc"]);
        let bundle = json!(BASE64_STANDARD.encode(fs::read(hooks.join("ca.crt")).expect("the authority")));
        let mut objects = self.cluster.get("crd,mutatingwebhookconfigurations,validatingwebhookconfigurations");
        for object in &mut objects {
            for hook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                hook["clientConfig"]["caBundle"] = bundle.clone();
            }
            if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                client["caBundle"] = bundle.clone();
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        self.cluster.kubectl_args(&["replace", "-f", "-"], Some(&list)).expect_success();
    }

    /// Starts the manager, and waits until its webhooks answer.
    pub fn manager(&self) -> HostDaemon {
        let host = &self.cluster.host;
        let account = host.file("account");
        fs::create_dir_all(&account).expect("a directory");
        let authority = self.cluster.get("configmap kube-root-ca.crt -n capi-system").remove(0);
        let write = |name: &str, text: &str| fs::write(account.join(name), text).expect("written");
        write("ca.crt", authority["data"]["ca.crt"].as_str().expect("text"));
        write("token", &self.token("capi-manager"));
        write("namespace", "capi-system");
        // A directory of pods is over the machine's own in a mount namespace that ends with the process.
        let script = "mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io && \
            cp -r \"$1\" /var/run/secrets/kubernetes.io/serviceaccount && shift && exec env \
            KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=6443 POD_NAMESPACE=capi-system POD_NAME=manager \
            POD_UID=1 \"$@\"";
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let daemon = HostDaemon::start(
            host,
            Path::new("unshare"),
            &[
                &["--mount", "sh", "-c", script, "sh", &text(&account), &text(&self.program)][..],
                &["--leader-elect", &format!("--webhook-cert-dir={}", text(&host.file("hooks")))],
                &[&format!("--diagnostics-address={ADDRESS}:8443"), "--feature-gates=ClusterTopology=true"],
            ]
            .concat(),
        );
        eventually("the manager is ready", || {
            let told = self.asked("http", 9440, &["/readyz"]);
            if told.code == 0 { Ok(()) } else { Err(told.stderr) }
        });
        daemon
    }

    /// A token of a service account of the manager's namespace.
    pub fn token(&self, account: &str) -> String {
        self.cluster.kubectl(&format!("create token {account} -n capi-system")).expect_success().trim().to_owned()
    }

    /// A response of the manager itself.
    pub fn asked(&self, scheme: &str, port: u16, arguments: &[&str]) -> CommandOutput {
        let server = format!("--server={scheme}://{ADDRESS}:{port}");
        let mut command = self.cluster.host.prepared("kubectl", &["--kubeconfig=/dev/null", &server]);
        run_command(command.args(["--insecure-skip-tls-verify", "get", "--raw"]).args(arguments), None)
    }

    pub fn apply(&self, object: &Value) -> CommandOutput {
        self.cluster.kubectl_args(&["apply", "-f", "-"], Some(&object.to_string()))
    }

    pub fn one(&self, what: &str) -> Value {
        self.cluster.get(what).remove(0)
    }

    /// Writes a line for everything that happens to objects; see [`Self::told`].
    pub fn watch(&self, file: &str, resource: &str, columns: &str) -> HostDaemon {
        let columns = format!("-o=jsonpath={columns}{{\"\\n\"}}");
        let mut command = self.cluster.kubectl_command(&["get", resource, "--watch", &columns]);
        let lines = fs::File::create(self.cluster.host.file(file)).expect("a file");
        HostDaemon::of(command.stdin(Stdio::null()).stdout(lines).stderr(Stdio::null()))
    }

    /// Waits until a watch has told a line.
    pub fn told(&self, file: &str, line: &str) {
        eventually(&format!("a watch tells {line:?}"), || {
            let seen = fs::read_to_string(self.cluster.host.file(file)).unwrap_or_default();
            if seen.lines().any(|seen| seen == line) { Ok(()) } else { Err(seen) }
        });
    }
}

/// The endpoint slice of the manager's service.
fn slice() -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "capi-webhook-service-1", "namespace": "capi-system",
            "labels": {"kubernetes.io/service-name": "capi-webhook-service"}},
        "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}],
        "ports": [{"port": 9443, "protocol": "TCP"}]})
}

fn provided(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.infrastructure.cluster.x-k8s.io"),
            "labels": {"cluster.x-k8s.io/v1beta2": "v1beta1"}},
        "spec": {"group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}
