//! One etcd, handed from kube-apiserver to Ferry and back: each reads what the other wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ferry_tests::{
    CommandOutput, TestCluster, TestHost, eventually, run_command, skip_reason,
    upstream::{self, ETCD, HostDaemon},
};

/// kube-apiserver with the cluster's own certificates.
fn kube_apiserver(host: &TestHost, program: &Path) -> (HostDaemon, PathBuf) {
    let pki = host.data_dir().join("pki");
    let flag = |name: &str, file: &str| format!("--{name}={}", pki.join(file).display());
    let mut arguments = vec![
        format!("--etcd-servers={ETCD}"),
        format!("--cert-dir={}", host.file("certs").display()),
        flag("client-ca-file", "ca.crt"),
        flag("tls-cert-file", "apiserver.crt"),
        flag("tls-private-key-file", "apiserver.key"),
        flag("service-account-key-file", "sa.pub"),
        flag("service-account-signing-key-file", "sa.key"),
    ];
    let fixed = "--secure-port=7443 --bind-address=127.0.0.1 --advertise-address=192.0.2.2 --authorization-mode=RBAC \
                 --service-account-issuer=https://kubernetes.default --service-cluster-ip-range=10.96.0.0/16";
    arguments.extend(fixed.split(' ').map(str::to_owned));
    let daemon = HostDaemon::start(host, program, &arguments);
    let ours = fs::read_to_string(host.data_dir().join("admin.kubeconfig")).expect("the kubeconfig");
    let kubeconfig = host.file("upstream.kubeconfig");
    fs::write(&kubeconfig, ours.replace(":6443", ":7443")).expect("written");
    eventually("kube-apiserver is ready", || {
        let told = kubectl(host, &kubeconfig, "get --raw /readyz");
        if told.code == 0 { Ok(()) } else { Err(told.stderr) }
    });
    (daemon, kubeconfig)
}

fn kubectl(host: &TestHost, kubeconfig: &Path, line: &str) -> CommandOutput {
    let mut command = host.prepared("kubectl", &["--kubeconfig", kubeconfig.to_str().expect("text")]);
    run_command(command.args(line.split(' ')), None)
}

#[test]
fn an_etcd_goes_to_ferry_and_back() {
    if skip_reason().is_some() {
        return;
    }
    let (Some(etcd_program), Some(server_program)) =
        (upstream::build_program("etcd"), upstream::build_program("kube-apiserver"))
    else {
        return;
    };
    // Certificates for both come from a cluster that was there before.
    let cluster = TestCluster::up();
    let host = &cluster.host;
    host.ferry(&["down"]).expect_success();
    let _etcd = upstream::start_etcd(host, &etcd_program);

    let (server, theirs) = kube_apiserver(host, &server_program);
    kubectl(host, &theirs, "create namespace n").expect_success();
    kubectl(host, &theirs, "create configmap c --from-literal=a=1 -n n").expect_success();
    kubectl(host, &theirs, "create deployment web --image=nginx --replicas=2 -n n").expect_success();
    kubectl(host, &theirs, "create service clusterip s --tcp=80 -n n").expect_success();
    let written = kubectl(host, &theirs, "get configmap,deployment,service,clusterroles -A -o name").expect_success();
    drop(server);

    let kubeconfig = host.file("kubeconfig");
    host.ferry(&["up", "--etcd-servers", ETCD, "--kubeconfig", kubeconfig.to_str().expect("text")]).expect_success();
    let read = cluster.kubectl("get configmap,deployment,service,clusterroles -A -o name").expect_success();
    let missing: Vec<&str> = written.lines().filter(|line| !read.lines().any(|other| other == *line)).collect();
    assert!(missing.is_empty(), "Ferry does not see {missing:?}");
    cluster.load_nginx(&["docker.io/library/nginx:latest"]);
    cluster.kubectl("wait --for=condition=Available --timeout=90s deployment/web -n n").expect_success();
    cluster.kubectl_args(&["patch", "configmap", "c", "-n", "n", "-p", r#"{"data":{"b":"2"}}"#], None).expect_success();
    cluster.kubectl("create secret generic k --from-literal=p=q -n n").expect_success();
    let pods = cluster.kubectl("get pods -n n -o name").expect_success();
    host.ferry(&["down"]).expect_success();

    let (_server, theirs) = kube_apiserver(host, &server_program);
    let data = kubectl(host, &theirs, "get configmap c -n n -o jsonpath={.data}").expect_success();
    assert_eq!(data, r#"{"a":"1","b":"2"}"#);
    assert_eq!(kubectl(host, &theirs, "get secret k -n n -o jsonpath={.data.p}").expect_success(), "cQ==");
    assert_eq!(kubectl(host, &theirs, "get pods -n n -o name").expect_success(), pods);
    assert!(
        kubectl(host, &theirs, "get nodes").expect_success().contains("Ready"),
        "what Ferry wrote in every kind is read"
    );
}
