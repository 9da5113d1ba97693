//! Upstream's sample API server, unmodified, behind an `APIService` of the shipped API server: its flunders are created,
//! listed, watched, explained and deleted by kubectl; it goes away and comes back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ferry_tests::{
    CommandOutput, TestCa, TestHost, eventually, machine, run_command, skip_reason,
    upstream::{self, ETCD, HostDaemon},
};

/// The host's own address: a slice must not lead to loopback.
const ADDRESS: &str = "192.0.2.2";

/// The shipped API server, etcd for the sample server, and what it takes to start that.
struct AggregationTest {
    // They end before their host.
    _daemons: Vec<HostDaemon>,
    host: TestHost,
    sample: PathBuf,
}

impl AggregationTest {
    fn start(sample: PathBuf, etcd: &Path) -> Self {
        let host = TestHost::new();
        let cluster = TestCa::new(host.dir(), "ca");
        cluster.issue("server", "servers", &["localhost"]);
        cluster.issue("admin", "system:masters", &[]);
        cluster.issue("wardle", "servers", &["api.wardle.svc"]);
        TestCa::new(host.dir(), "front-proxy-ca").issue("front-proxy-client", "proxies", &[]);
        fs::write(host.file("kubeconfig"), kubeconfig(&host)).expect("written");
        let etcd = upstream::start_etcd(&host, etcd);
        let server = HostDaemon::start(&host, &machine::built_program("ferry"), &server_flags(&host));
        let world = Self { _daemons: vec![etcd, server], host, sample };
        eventually("the API server is ready", || {
            let told = world.kubectl("get --raw /readyz");
            if told.code == 0 { Ok(()) } else { Err(told.stderr) }
        });
        world
    }

    fn sample(&self) -> HostDaemon {
        let file = |name: &str| self.host.file(name).display().to_string();
        let mut flags = words(&format!("--etcd-servers={ETCD} --secure-port=8443 --bind-address={ADDRESS}"));
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            flags.push(format!("--{flag}={}", file("kubeconfig")));
        }
        flags.push(format!("--tls-cert-file={}", file("wardle.crt")));
        flags.push(format!("--tls-private-key-file={}", file("wardle.key")));
        HostDaemon::start(&self.host, &self.sample, &flags)
    }

    fn kubectl(&self, line: &str) -> CommandOutput {
        run_command(&mut self.prepared(&line.split(' ').collect::<Vec<_>>()), None)
    }

    fn apply(&self, manifest: &str) -> CommandOutput {
        run_command(&mut self.prepared(&["apply", "-f", "-"]), Some(manifest))
    }

    fn prepared(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.host.file("kubeconfig");
        let mut command = self.host.prepared("kubectl", &["--kubeconfig", kubeconfig.to_str().expect("text")]);
        command.args(arguments);
        command
    }

    fn until_available(&self, status: &str) {
        for version in ["v1alpha1", "v1beta1"] {
            let line = format!("wait apiservice/{version}.wardle.example.com --for=condition=Available={status}");
            self.kubectl(&format!("{line} --timeout=90s")).expect_success();
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn server_flags(host: &TestHost) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", host.file(name).display());
    let mut flags = words(&format!(
        "kube-apiserver --secure-port=6443 --bind-address=127.0.0.1 --advertise-address={ADDRESS} \
         --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=RBAC --requestheader-allowed-names=front-proxy-client \
         --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
         --requestheader-uid-headers=X-Remote-Uid --requestheader-extra-headers-prefix=X-Remote-Extra-"
    ));
    flags.extend([
        file("data-dir", "data"),
        file("tls-cert-file", "server.crt"),
        file("tls-private-key-file", "server.key"),
        file("client-ca-file", "ca.crt"),
        file("requestheader-client-ca-file", "front-proxy-ca.crt"),
        file("proxy-client-cert-file", "front-proxy-client.crt"),
        file("proxy-client-key-file", "front-proxy-client.key"),
    ]);
    flags
}

fn kubeconfig(host: &TestHost) -> String {
    let file = |name: &str| host.file(name).display().to_string();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:6443\", certificate-authority: {}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {{client-certificate: {}, client-key: {}}}}}]\n",
        file("ca.crt"),
        file("admin.crt"),
        file("admin.key")
    )
}

/// A service that leads to the sample server, and the API services that lead to the service.
fn manifest(host: &TestHost) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let bundle = BASE64_STANDARD.encode(fs::read(host.file("ca.crt")).expect("the authority"));
    let mut text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: wardle}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: api, namespace: wardle}}\n\
         spec: {{ports: [{{name: https, port: 443, targetPort: 8443}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{name: api-1, namespace: wardle, labels: {{kubernetes.io/service-name: api}}}}\n\
         endpoints: [{{addresses: [{ADDRESS}], conditions: {{ready: true}}}}]\n\
         ports: [{{name: https, port: 8443, protocol: TCP}}]\n"
    );
    for (version, priority) in [("v1alpha1", 15), ("v1beta1", 20)] {
        text += &format!(
            "---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\n\
             metadata: {{name: {version}.wardle.example.com}}\n\
             spec:\n  group: wardle.example.com\n  version: {version}\n  groupPriorityMinimum: 1000\n  \
             versionPriority: {priority}\n  service: {{name: api, namespace: wardle}}\n  caBundle: {bundle}\n"
        );
    }
    text
}

fn flunder(name: &str) -> String {
    format!(
        "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {{name: {name}, labels: {{sample: yes-it-is}}}}\n"
    )
}

#[test]
fn the_sample_api_server_behind_an_api_service() {
    if skip_reason().is_some() {
        return;
    }
    let (Some(sample), Some(etcd)) =
        (upstream::build_program("sample-apiserver-1.36"), upstream::build_program("etcd"))
    else {
        return;
    };
    let world = AggregationTest::start(sample, &etcd);
    world.apply(&manifest(&world.host)).expect_success();
    let away = world.kubectl("get --raw /apis/wardle.example.com/v1beta1").expect_failure();
    assert!(away.contains("the server is currently unable to handle the request"), "{away}");
    let server = world.sample();
    world.until_available("True");

    let resources = world.kubectl("api-resources --api-group=wardle.example.com -o name").expect_success();
    assert_eq!(resources, "fischers.wardle.example.com\nflunders.wardle.example.com\n");
    let explained = world.kubectl("explain flunders.spec").expect_success();
    assert!(explained.contains("referenceType") && explained.contains("VERSION:    v1beta1"), "{explained}");

    let watched = world.host.file("watched");
    let mut watch = world.prepared(&["get", "flunders", "--watch", "--no-headers", "-o=name"]);
    watch.stdout(fs::File::create(&watched).expect("a file")).stderr(Stdio::null());
    let watch = HostDaemon::of(&mut watch);
    world.apply(&flunder("first")).expect_success();
    assert_eq!(world.apply(&flunder("second")).expect_success(), "flunder.wardle.example.com/second created\n");
    let both = "flunder.wardle.example.com/first\nflunder.wardle.example.com/second\n";
    assert_eq!(world.kubectl("get flunders -l sample=yes-it-is -o name").expect_success(), both);
    let old =
        world.kubectl("get flunders.v1alpha1.wardle.example.com first -o jsonpath={.apiVersion}").expect_success();
    assert_eq!(old, "wardle.example.com/v1alpha1");
    eventually("a watch tells of both", || {
        let seen = fs::read_to_string(&watched).unwrap_or_default();
        if seen.ends_with(both) { Ok(()) } else { Err(seen) }
    });
    drop(watch);
    let changed = world.kubectl("label flunder first more=words --dry-run=server -o jsonpath={.metadata.labels.more}");
    assert_eq!(changed.expect_success(), "words");
    world.kubectl("delete flunder first").expect_success();

    let stranger = world.kubectl("get flunders --as=eve").expect_failure();
    assert!(
        stranger.contains("User \"eve\" cannot list resource \"flunders\" in API group \"wardle.example.com\""),
        "{stranger}"
    );

    drop(server);
    let unreachable = world.kubectl("get --raw /apis/wardle.example.com/v1beta1/flunders -v=8").expect_failure();
    assert!(
        unreachable.contains("error trying to reach service: dial tcp 192.0.2.2:8443: connect: connection refused"),
        "{unreachable}"
    );
    world.until_available("False");
    let columns = "-o=jsonpath={.status.conditions[0].reason}";
    assert_eq!(
        world.kubectl(&format!("get apiservice v1beta1.wardle.example.com {columns}")).expect_success(),
        "FailedDiscoveryCheck"
    );
    world.kubectl("get flunders").expect_failure();
    world.kubectl("get namespaces").expect_success();

    let _back = world.sample();
    world.until_available("True");
    assert_eq!(world.kubectl("get flunders -o name").expect_success(), "flunder.wardle.example.com/second\n");
}
