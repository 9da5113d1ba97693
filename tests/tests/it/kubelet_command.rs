//! `ferry kubelet` by name: a second node on a machine, with a configuration file, drop-in files, TLS bootstrap, static pods
//! and eviction.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
};

use ferry_tests::{TestCluster, TestHost, eventually, machine::built_program, skip_reason};

const NODE: &str = "second";

/// A kubelet and its container runtime beside a cluster, ended with the test.
struct SecondNode<'a> {
    cluster: &'a TestCluster,
    dir: PathBuf,
    runtime: Child,
    kubelet: Option<Child>,
}

impl<'a> SecondNode<'a> {
    fn start(cluster: &'a TestCluster) -> Self {
        let dir = cluster.host.file("n2");
        for name in ["cni", "manifests", "conf"] {
            fs::create_dir_all(dir.join(name)).expect("a directory");
        }
        let ipam = format!(
            r#"{{"type":"host-local","dataDir":"{}","ranges":[[{{"subnet":"10.77.0.0/24"}}]],"routes":[{{"dst":"0.0.0.0/0"}}]}}"#,
            dir.join("ipam").display()
        );
        let network = format!(r#"{{"cniVersion":"1.0.0","name":"n2","plugins":[{{"type":"ptp","ipam":{ipam}}}]}}"#);
        fs::write(dir.join("cni/10-n2.conflist"), network).expect("a file");
        let data = cluster.host.data_dir();
        let text = |path: PathBuf| path.display().to_string();
        let runtime = cluster
            .host
            .prepared(
                built_program("ferry"),
                &[
                    "container-runtime",
                    &format!("--root={}", text(dir.join("rt"))),
                    &format!("--cni-config-dir={}", text(dir.join("cni"))),
                    &format!("--cni-plugin-dir={}", text(data.join("cni/bin"))),
                    &format!("--registry-config-dir={}", text(data.join("certs.d"))),
                ],
            )
            .stderr(fs::File::create(dir.join("rt.log")).expect("a file"))
            .spawn()
            .expect("a container runtime");
        eventually("the runtime's socket", || match dir.join("rt/cri.sock").exists() {
            true => Ok(()),
            false => Err("no socket".to_owned()),
        });
        Self { cluster, dir, runtime, kubelet: None }
    }

    fn write_configuration(&self) {
        let ca = self.cluster.host.data_dir().join("pki/ca.crt");
        let dir = self.dir.display();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: 10350\nhealthzPort: 10348\n\
             staticPodPath: {dir}/manifests\npodLogsDir: {dir}/logs\ncgroupRoot: /{}\nserverTLSBootstrap: true\n\
             rotateCertificates: true\nauthentication: {{x509: {{clientCAFile: {}}}}}\n\
             containerRuntimeEndpoint: unix://{dir}/rt/cri.sock\nmaxPods: 20\n",
            cgroup_name(),
            ca.display()
        );
        fs::write(self.dir.join("config"), config).expect("a file");
        let drop_in = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 30\n\
             registerWithTaints: [{key: second, effect: NoSchedule}]\ncpuManagerPolicy: static\n\
             reservedSystemCPUs: '0'\ncpuManagerReconcilePeriod: 1s\npodPidsLimit: 500\n";
        fs::write(self.dir.join("conf/10.conf"), drop_in).expect("a file");
        let created = self.cluster.host.ferry(&["token", "create"]).expect_success();
        let token =
            created.split_whitespace().skip_while(|word| *word != "--token").nth(1).expect("a token").to_owned();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443', \
             certificate-authority: {}}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            ca.display()
        );
        fs::write(self.dir.join("bootstrap"), kubeconfig).expect("a file");
    }

    fn start_kubelet(&mut self, more: &[&str]) {
        self.end_kubelet();
        let path = |name: &str| self.dir.join(name).display().to_string();
        let flags = [
            format!("--config={}", path("config")),
            format!("--config-dir={}", path("conf")),
            format!("--kubeconfig={}", path("kubeconfig")),
            format!("--bootstrap-kubeconfig={}", path("bootstrap")),
            format!("--cert-dir={}", path("pki")),
            format!("--root-dir={}", path("root")),
            format!("--hostname-override={NODE}"),
            "--node-ip=192.0.2.2".to_owned(),
            "--node-labels=place=here".to_owned(),
        ];
        let mut args = vec!["kubelet"];
        args.extend(flags.iter().map(String::as_str).chain(more.iter().copied()));
        let log = fs::File::create(self.dir.join("kubelet.log")).expect("a file");
        let mut command = self.cluster.host.prepared(built_program("ferry"), &args);
        self.kubelet = Some(command.stderr(log).spawn().expect("a kubelet"));
    }

    fn end_kubelet(&mut self) {
        if let Some(mut kubelet) = self.kubelet.take() {
            end(&mut kubelet);
        }
    }
}

/// Ends a child with SIGTERM.
fn end(child: &mut Child) {
    let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
}

impl Drop for SecondNode<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.dir.join("kubelet.log")).unwrap_or_default());
        }
        self.end_kubelet();
        end(&mut self.runtime);
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_cgroups(&hierarchy.path().join(cgroup_name()));
        }
    }
}

/// The cgroup of the second node's pods.
fn cgroup_name() -> String {
    format!("ferry-test-{}", std::process::id())
}

/// Removes empty cgroups, the inner ones first.
fn remove_cgroups(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_cgroups(&entry.path());
    }
    let _ = fs::remove_dir(path);
}

fn manifest(word: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: static, labels: {{app: static}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers: [{{name: c, image: nginx, imagePullPolicy: IfNotPresent, command: [bash, -c, 'echo {word}; sleep 1000']}}]\n"
    )
}

#[test]
fn kubelet_by_name_joins_and_runs_static_pods() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up_with(TestHost::new(), &["--container-runtime=ferry"]);
    let mut node = SecondNode::start(&cluster);
    node.write_configuration();
    let file = node.dir.join("manifests/static.yaml");
    fs::write(&file, manifest("one")).expect("a file");
    node.start_kubelet(&[]);
    check_node(&cluster);
    check_static_pod(&cluster, "one");
    fs::write(&file, manifest("two")).expect("a file");
    check_static_pod(&cluster, "two");
    cluster.kubectl(&format!("delete pod static-{NODE}")).expect_success();
    check_static_pod(&cluster, "two");
    check_pages(&cluster);
    check_own_cpus(&cluster);
    check_eviction(&cluster, &mut node);
    fs::remove_file(&file).expect("the manifest");
    eventually("the end of the static pod", || match cluster.get("pods").is_empty() {
        true => Ok(()),
        false => Err(cluster.kubectl("get pods").stdout),
    });
}

/// The node has what flags, configuration and drop-in file say.
fn check_node(cluster: &TestCluster) {
    let node = eventually("the second node", || {
        let found = cluster.get("nodes").into_iter().find(|node| node["metadata"]["name"] == NODE);
        let ready = |node: &serde_json::Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        found.filter(ready).ok_or_else(|| "not Ready".to_owned())
    });
    assert_eq!(node["metadata"]["labels"]["place"], "here");
    assert_eq!(
        (&node["status"]["capacity"]["pods"], &node["spec"]["taints"][0]["key"]),
        (&"30".into(), &"second".into())
    );
    assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10350);
}

/// A guaranteed pod that asks for one CPU has it for itself, as long as it runs.
fn check_own_cpus(cluster: &TestCluster) {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let container = "name: c, image: nginx, imagePullPolicy: IfNotPresent, \
        command: [bash, -c, 'grep Cpus_allowed_list /proc/self/status; sleep 1000']";
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: pinned}}\nspec:\n  nodeName: {NODE}\n  terminationGracePeriodSeconds: 1\n  \
         tolerations: [{{operator: Exists}}]\n  containers: [{{{container}, resources: {{limits: {{cpu: '1', memory: 64Mi}}}}}}]\n"
    );
    let all = shared_cpus(cluster);
    cluster.kubectl_args(&["create", "-f", "-"], Some(&pod)).expect_success();
    let own = eventually("the CPU of the pinned pod", || {
        let log = cluster.kubectl("logs pinned").stdout;
        let cpu = log.split_whitespace().last().and_then(|cpu| cpu.parse::<u32>().ok());
        cpu.ok_or_else(|| format!("{log:?} is not one CPU\n{}", cluster.kubectl("describe pod pinned").stdout))
    });
    assert_ne!(own, 0, "the reserved CPU");
    eventually("the CPUs of the other pod", || match shared_cpus(cluster) {
        cpus if cpus == all => Err(format!("still {cpus}")),
        _ => Ok(()),
    });
    cluster.kubectl("delete pod pinned").expect_success();
    eventually("all CPUs for the other pod again", || match shared_cpus(cluster) {
        cpus if cpus == all => Ok(()),
        cpus => Err(format!("{cpus}, not {all}")),
    });
}

/// The CPUs of the static pod, which has none of its own.
fn shared_cpus(cluster: &TestCluster) -> String {
    let pod = format!("static-{NODE}");
    let line = cluster.kubectl_args(&["exec", &pod, "--", "grep", "Cpus_allowed_list", "/proc/1/status"], None);
    line.expect_success().split_whitespace().last().unwrap_or_default().to_owned()
}

/// The mirror pod runs and its log says `word`; the uid of the log is the static pod's.
fn check_static_pod(cluster: &TestCluster, word: &str) {
    eventually(&format!("the static pod that says {word}"), || {
        let log = cluster.kubectl(&format!("logs static-{NODE}"));
        if log.stdout.trim() != word {
            return Err(format!("{}{}", log.stdout, log.stderr));
        }
        let pod = cluster.get(&format!("pod static-{NODE}")).remove(0);
        let phase = pod["status"]["phase"].clone();
        let owner = &pod["metadata"]["ownerReferences"][0]["kind"];
        if phase == "Running" && owner == "Node" { Ok(()) } else { Err(pod.to_string()) }
    });
}

/// The kubelet's pages answer through the API server.
fn check_pages(cluster: &TestCluster) {
    let read =
        |path: &str| cluster.kubectl_args(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")], None);
    for (path, expected) in [
        ("configz", "\"maxPods\":30"),
        ("statusz", "kubelet statusz"),
        ("flagz", &format!("hostname-override={NODE}") as &str),
        ("metrics/cadvisor", "container_memory_working_set_bytes{container=\"c\""),
        ("metrics/probes", "prober_probe_total"),
        ("healthz", "ok"),
    ] {
        eventually(path, || {
            let text = read(path).stdout;
            if text.contains(expected) { Ok(()) } else { Err(text) }
        });
    }
    let health = cluster.host.command("curl", &["-s", "http://127.0.0.1:10348/healthz"]).expect_success();
    assert_eq!(health, "ok");
}

/// A node without memory says so and evicts a pod, but never a static one.
fn check_eviction(cluster: &TestCluster, node: &mut SecondNode<'_>) {
    let pod = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"victim"}},"spec":{{"nodeName":"{NODE}","terminationGracePeriodSeconds":1,
        "tolerations":[{{"operator":"Exists"}}],"containers":[{{"name":"c","image":"nginx","imagePullPolicy":"IfNotPresent","command":["sleep","1000"]}}]}}}}"#
    );
    cluster.kubectl_args(&["create", "-f", "-"], Some(&pod)).expect_success();
    eventually("the victim", || {
        let pod = cluster.get("pod victim").remove(0);
        if pod["status"]["phase"] == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    node.start_kubelet(&["--eviction-hard=memory.available<10000Gi"]);
    eventually("the eviction", || {
        let pod = cluster.get("pod victim").remove(0);
        let evicted = pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted";
        if evicted { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    eventually("the pressure", || {
        let taints = cluster.kubectl(&format!("get node {NODE} -o jsonpath={{.spec.taints}}")).stdout;
        if taints.contains("memory-pressure") { Ok(()) } else { Err(taints) }
    });
    cluster.kubectl("delete pod victim --now").expect_success();
    check_static_pod(cluster, "two");
}
