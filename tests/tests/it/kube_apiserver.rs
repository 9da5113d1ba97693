//! The API server alone, under its upstream name: its flags, its refusals, its end, and what it leaves for the next start.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use ferry_tests::{CommandOutput, eventually, machine, run_command};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// An API server with an administrator's kubeconfig, until it is dropped.
struct ApiServerProcess {
    child: Child,
    dir: PathBuf,
}

impl Drop for ApiServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

/// An authority and an administrator's certificate.
fn certificates(dir: &Path) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    fs::write(dir.join("ca.crt"), params.self_signed(&key).expect("signed").pem()).expect("written");
    let issuer = Issuer::new(params, key);
    let admin_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(DnType::CommonName, "admin");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    fs::write(dir.join("admin.crt"), params.signed_by(&admin_key, &issuer).expect("signed").pem()).expect("written");
    fs::write(dir.join("admin.key"), admin_key.serialize_pem()).expect("written");
}

fn kubeconfig(dir: &Path, port: u16) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{client-certificate: {0}/admin.crt, client-key: {0}/admin.key}}}}]\n",
        dir.display()
    );
    fs::write(dir.join("kubeconfig"), text).expect("written");
}

impl ApiServerProcess {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let port = free_port();
        if !dir.join("ca.crt").exists() {
            certificates(dir);
        }
        kubeconfig(dir, port);
        let program = dir.join("kube-apiserver");
        if !program.exists() {
            std::os::unix::fs::symlink(machine::built_program("ferry"), &program).expect("a link");
        }
        let path = |name: &str| dir.join(name).display().to_string();
        let mut command = Command::new(program);
        command
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}"), "--data-dir", &path("data")])
            .args(["--cert-dir", &path("certs"), "--client-ca-file", &path("ca.crt")])
            .args(["--service-cluster-ip-range", "10.96.0.0/16"])
            .args(more);
        let log = fs::File::create(dir.join("log")).expect("a log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        let server = Self { child, dir: dir.to_owned() };
        eventually("the API server is ready", || {
            let told = server.kubectl("get --raw /readyz", None);
            if told.code == 0 {
                Ok(())
            } else {
                Err(told.stderr + &fs::read_to_string(dir.join("log")).unwrap_or_default())
            }
        });
        server
    }

    fn kubectl(&self, line: &str, input: Option<&str>) -> CommandOutput {
        let kubeconfig = self.dir.join("kubeconfig");
        run_command(Command::new("kubectl").arg("--kubeconfig").arg(kubeconfig).args(line.split(' ')), input)
    }

    fn signal(&self, name: &str) {
        run_command(Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]), None)
            .expect_success();
    }

    /// Waits for the end; the exit code.
    fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

fn ferry(line: &str) -> CommandOutput {
    run_command(Command::new(machine::built_program("ferry")).arg("kube-apiserver").args(line.split(' ')), None)
}

#[test]
fn flags_are_upstreams_and_what_cannot_be_done_is_refused_by_name() {
    let help = ferry("--help").expect_success();
    for section in ["Generic flags:", "Secure serving flags:", "Admission flags:", "Misc flags:"] {
        assert!(help.contains(section), "{section}");
    }
    assert!(ferry("--version").expect_success().starts_with("Kubernetes v1.36"));
    assert!(ferry("--no-such-flag").expect_failure().contains("unknown flag: --no-such-flag"));
    assert!(ferry("--cors-allowed-origins=a").expect_failure().contains("--cors-allowed-origins is not supported"));
    assert!(ferry("--secure-port=x --data-dir=/nowhere").expect_failure().contains("--secure-port"));
    assert!(ferry("--secure-port=1").expect_failure().contains("--data-dir"));
}

#[test]
fn objects_outlive_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server =
        ApiServerProcess::start(dir.path(), &["--authorization-mode=Node,RBAC", "--livez-grace-period=5s"]);
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(log.contains("no effect") && log.contains("livez-grace-period"), "{log}");
    server.kubectl("create configmap kept --from-literal=a=b", None).expect_success();
    server.kubectl("create service nodeport web --tcp=80:80", None).expect_success();
    let service = server
        .kubectl("get service web -o jsonpath={.spec.clusterIP}:{.spec.ports[0].nodePort}", None)
        .expect_success();
    assert!(service.starts_with("10.96."), "{service}");
    assert!(server.kubectl("get --raw /metrics", None).expect_success().contains("apiserver_request_total"));
    server.signal("KILL");
    server.ended();
    drop(server);
    let server = ApiServerProcess::start(dir.path(), &[]);
    assert_eq!(server.kubectl("get configmap kept -o jsonpath={.data.a}", None).expect_success(), "b");
    let again = server
        .kubectl("get service web -o jsonpath={.spec.clusterIP}:{.spec.ports[0].nodePort}", None)
        .expect_success();
    assert_eq!(again, service);
    let port = service.rsplit(':').next().expect("a port");
    let taken = format!("create service nodeport other --tcp=80:80 --node-port={port}");
    assert!(server.kubectl(&taken, None).expect_failure().contains("provided port is already allocated"));
}

#[test]
fn it_ends_with_grace() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = ApiServerProcess::start(dir.path(), &["--shutdown-delay-duration=3s"]);
    let mut watch = Command::new("kubectl");
    watch.arg("--kubeconfig").arg(dir.path().join("kubeconfig")).args(["get", "--raw", "/api/v1/namespaces?watch=1"]);
    let watching = watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    eventually("the watch has begun", || {
        let metrics = server.kubectl("get --raw /metrics", None).expect_success();
        let begun = |line: &&str| line.starts_with("apiserver_longrunning_requests") && line.contains("namespaces");
        let line = metrics.lines().find(begun).ok_or("no watch is counted")?;
        if line.ends_with(" 1") { Ok(()) } else { Err(line.to_owned()) }
    });
    server.signal("TERM");
    eventually("it is not ready", || {
        let told = server.kubectl("get --raw /readyz", None);
        if told.code != 0 && told.stderr.contains("shutdown") { Ok(()) } else { Err(told.stdout) }
    });
    assert_eq!(server.kubectl("get --raw /livez", None).expect_success(), "ok", "it goes on serving for a while");
    assert_eq!(server.ended(), Some(0));
    let ended = watching.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "the watch ends as watches do: {}", String::from_utf8_lossy(&ended.stderr));
}
