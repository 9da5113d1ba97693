//! One table over pod fields: a pod that uses the field, and what its container prints or its status says.

use ferry_tests::{TestCluster, eventually, skip_reason};
use serde_json::{Value, json};

#[test]
fn pod_fields_take_effect() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    create_objects(&cluster);
    let cases = cases();
    let node = cluster.kubectl("get nodes -o jsonpath={.items[0].metadata.name}").expect_success();
    let manifests: Vec<Value> = cases.iter().map(|case| case.manifest(&node)).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests }).to_string();
    cluster.kubectl_args(&["create", "-f", "-"], Some(&list)).expect_success();
    for case in &cases {
        case.check(&cluster);
    }
    start_ephemeral_container(&cluster);
    update_config_map(&cluster);
    resize_in_place(&cluster);
    probe_grpc_server(&cluster);
    report_usage(&cluster, &node);
}

/// A pod, and what it must come to.
struct FieldCase {
    name: &'static str,
    spec: Value,
    /// The log of the container `c`, if the case is about what it sees.
    output: Option<&'static str>,
    /// Values of the pod by JSON pointer.
    status: Vec<(&'static str, Value)>,
}

impl FieldCase {
    /// A pod that runs a script once and must print `output`. `changes` is merged into its spec.
    fn prints(name: &'static str, script: &str, changes: Value, output: &'static str) -> Self {
        let container = json!({ "name": "c", "image": "nginx", "imagePullPolicy": "IfNotPresent",
            "command": ["bash", "-c", script] });
        let mut spec =
            json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container] });
        merge(&mut spec, changes);
        Self { name, spec, output: Some(output), status: vec![("/status/phase", json!("Succeeded"))] }
    }

    /// A pod whose status must have these values.
    fn reaches(name: &'static str, script: &str, changes: Value, status: Vec<(&'static str, Value)>) -> Self {
        Self { output: None, status, ..Self::prints(name, script, changes, "") }
    }

    /// The pod, bound to the node: the kubelet decides about it, not the scheduler.
    fn manifest(&self, node: &str) -> Value {
        let mut spec = self.spec.clone();
        spec["nodeName"] = node.into();
        let metadata = json!({ "name": self.name, "labels": { "app": self.name }, "annotations": { "note": "a\"b" } });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    }

    #[track_caller]
    fn check(&self, cluster: &TestCluster) {
        eventually(&format!("the pod {}", self.name), || {
            let pod = cluster.get(&format!("pod {}", self.name)).remove(0);
            for (pointer, expected) in &self.status {
                let actual = pod.pointer(pointer).cloned().unwrap_or_default();
                if actual != *expected {
                    let events =
                        cluster.kubectl(&format!("get events --field-selector involvedObject.name={}", self.name));
                    return Err(format!("{}: {pointer} is {actual}\n{}\n{}", self.name, pod["status"], events.stdout));
                }
            }
            Ok(())
        });
        if let Some(output) = self.output {
            let log = cluster.kubectl(&format!("logs {} -c c", self.name)).expect_success();
            assert_eq!(log.trim_end(), output, "{}", self.name);
        }
    }
}

/// Merges objects; the first item of a list gets the fields of the first item of the other.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value))
        }
        (Value::Array(into), Value::Array(from)) => {
            for (index, value) in from.into_iter().enumerate() {
                match into.get_mut(index) {
                    Some(item) => merge(item, value),
                    None => into.push(value),
                }
            }
        }
        (into, from) => *into = from,
    }
}

fn create_objects(cluster: &TestCluster) {
    let disk = cluster.host.file("disk");
    std::fs::create_dir_all(disk.join("sub")).expect("a directory");
    std::fs::write(disk.join("sub/file"), "on disk\n").expect("a file");
    let node = cluster.kubectl("get nodes -o jsonpath={.items[0].metadata.name}").expect_success();
    let terms =
        json!([{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] }]);
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "disk" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "claimRef": { "namespace": "default", "name": "claim" }, "local": { "path": disk },
            "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } });
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "volumeName": "disk",
            "resources": { "requests": { "storage": "1Gi" } } } });
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config" },
        "data": { "key": "value", "other": "second" } });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" },
        "stringData": { "password": "hunter2" } });
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [volume, claim, config, secret] }).to_string();
    cluster.kubectl_args(&["create", "-f", "-"], Some(&list)).expect_success();
}

fn cases() -> Vec<FieldCase> {
    [
        volume_cases(),
        environment_cases(),
        security_cases(),
        user_namespace_cases(),
        standard_output_cases(),
        lifecycle_cases(),
        network_cases(),
        storage_cases(),
    ]
    .concat()
}

impl Clone for FieldCase {
    fn clone(&self) -> Self {
        Self { name: self.name, spec: self.spec.clone(), output: self.output, status: self.status.clone() }
    }
}

fn volume_cases() -> Vec<FieldCase> {
    let volume = |source: Value, mount: Value| {
        let mut volume = json!({ "name": "v" });
        merge(&mut volume, source);
        let mut at = json!({ "name": "v", "mountPath": "/v" });
        merge(&mut at, mount);
        json!({ "volumes": [volume], "containers": [{ "volumeMounts": [at] }] })
    };
    let config = || json!({ "configMap": { "name": "config" } });
    vec![
        FieldCase::prints("config-map", "cat /v/key", volume(config(), json!({})), "value"),
        FieldCase::prints("sub-path-file", "cat /v", volume(config(), json!({ "subPath": "key" })), "value"),
        FieldCase::prints(
            "sub-path-expression",
            "echo x > /v/f; ls /v",
            {
                let mut spec = volume(json!({ "emptyDir": {} }), json!({ "subPathExpr": "$(DIR)/deep" }));
                merge(&mut spec, json!({ "containers": [{ "env": [{ "name": "DIR", "value": "made" }] }] }));
                spec
            },
            "f",
        ),
        FieldCase::prints(
            "memory",
            "stat -f -c %T /v; df --output=size -B1M /v | tail -1 | tr -d ' '",
            volume(json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "8Mi" } }), json!({})),
            "tmpfs\n8",
        ),
        FieldCase::prints(
            "claim",
            "cat /v/file; stat -c %g /v",
            {
                let mut spec =
                    volume(json!({ "persistentVolumeClaim": { "claimName": "claim" } }), json!({ "subPath": "sub" }));
                merge(&mut spec, json!({ "securityContext": { "fsGroup": 4321 } }));
                spec
            },
            "on disk\n4321",
        ),
        FieldCase::prints(
            "projected",
            "cat /v/a/password /v/labels; echo; test -s /v/token && stat -L -c %a /v/token",
            volume(
                json!({ "projected": { "sources": [
                    { "secret": { "name": "secret", "items": [{ "key": "password", "path": "a/password" }] } },
                    { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
                    { "serviceAccountToken": { "path": "token", "expirationSeconds": 600 } }] } }),
                json!({}),
            ),
            "hunter2app=\"projected\"\n644",
        ),
        FieldCase::prints(
            "read-only",
            "touch /v/x 2>/dev/null || echo refused",
            volume(json!({ "emptyDir": {} }), json!({ "readOnly": true })),
            "refused",
        ),
        FieldCase::reaches(
            "sub-path-escape",
            "cat /v",
            {
                let mut spec = volume(json!({ "emptyDir": {} }), json!({ "subPath": "escape" }));
                let link = json!({ "name": "link", "image": "nginx", "imagePullPolicy": "IfNotPresent",
                    "command": ["ln", "-s", "/etc", "/v/escape"], "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
                merge(&mut spec, json!({ "initContainers": [link] }));
                spec
            },
            vec![("/status/containerStatuses/0/state/waiting/reason", json!("CreateContainerConfigError"))],
        ),
    ]
}

fn environment_cases() -> Vec<FieldCase> {
    let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    let resource = |name: &str| json!({ "resourceFieldRef": { "containerName": "c", "resource": name } });
    let env = json!([
        { "name": "NAME", "valueFrom": field("metadata.name") },
        { "name": "NOTE", "valueFrom": field("metadata.annotations['note']") },
        { "name": "CPU", "valueFrom": resource("limits.cpu") },
        { "name": "KEY", "valueFrom": { "configMapKeyRef": { "name": "config", "key": "key" } } },
        { "name": "BOTH", "value": "$(NAME)-$(KEY)-$$(KEY)" }]);
    vec![
        FieldCase::prints(
            "environment",
            "echo $NAME $NOTE $CPU $BOTH $P_other; test -n \"$KUBERNETES_SERVICE_HOST\" && echo services",
            json!({ "containers": [{ "env": env, "resources": { "limits": { "cpu": "1" } },
                "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "config" } }] }] }),
            "environment a\"b 1 environment-value-$(KEY) second\nservices",
        ),
        FieldCase::prints(
            "environment-file",
            "echo \"$KEY $ABSENT.\"",
            {
                let reference = |key: &str, optional: bool| json!({ "fileKeyRef": { "volumeName": "v", "path": "dir/env", "key": key, "optional": optional } });
                let write = "mkdir /v/dir; echo \"KEY='a  b' # words\" > /v/dir/env";
                let init = json!({ "name": "i", "image": "nginx", "imagePullPolicy": "IfNotPresent",
                    "command": ["bash", "-c", write], "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
                json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "initContainers": [init], "containers": [{ "env": [
                    { "name": "KEY", "valueFrom": reference("KEY", false) },
                    { "name": "ABSENT", "valueFrom": reference("OTHER", true) }] }] })
            },
            "a  b .",
        ),
        FieldCase::prints(
            "host-network-ip",
            "test \"$POD\" = \"$HOST\" && echo same",
            json!({ "hostNetwork": true, "containers": [{ "env": [
                { "name": "POD", "valueFrom": field("status.podIP") },
                { "name": "HOST", "valueFrom": field("status.hostIP") }] }] }),
            "same",
        ),
    ]
}

fn security_cases() -> Vec<FieldCase> {
    vec![
        FieldCase::prints(
            "users",
            "id -u; id -g; id -G",
            json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000,
                "supplementalGroups": [4000] } }),
            "1000\n2000\n2000 3000 4000",
        ),
        FieldCase::prints(
            "group-alone",
            "id -u; id -g",
            json!({ "securityContext": { "runAsGroup": 2000 } }),
            "0\n2000",
        ),
        FieldCase::prints(
            "sysctl",
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
            json!({ "securityContext": { "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "77" }] } }),
            "77",
        ),
        FieldCase::reaches(
            "unsafe-sysctl",
            "true",
            json!({ "securityContext": { "sysctls": [{ "name": "kernel.msgmax", "value": "77" }] } }),
            vec![
                ("/status/phase", json!("Failed")),
                ("/status/reason", json!("SysctlForbidden")),
                ("/status/message", json!("Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
            ],
        ),
        FieldCase::prints(
            "privileges",
            "grep NoNewPrivs /proc/self/status; touch /x 2>/dev/null || echo read-only",
            json!({ "containers": [{ "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true } }] }),
            "NoNewPrivs:\t1\nread-only",
        ),
        FieldCase::reaches(
            "not-root",
            "true",
            json!({ "securityContext": { "runAsNonRoot": true } }),
            vec![("/status/containerStatuses/0/state/waiting/reason", json!("CreateContainerConfigError"))],
        ),
    ]
}

/// Pods with a user namespace: root in them has no rights on the host, and owns the files that it should own.
fn user_namespace_cases() -> Vec<FieldCase> {
    if !ferry_tests::machine::tests_own_runtime() {
        return Vec::new();
    }
    let map = "read -r first host length < /proc/self/uid_map; [ $host -ge 65536 ] && echo $first $length";
    let mounts = json!([{ "name": "v", "mountPath": "/v" }, { "name": "s", "mountPath": "/s" },
        { "name": "c", "mountPath": "/c" }]);
    let volumes = json!([{ "name": "v", "emptyDir": {} }, { "name": "s", "secret": { "secretName": "secret" } },
        { "name": "c", "configMap": { "name": "config" } }]);
    vec![
        FieldCase::prints(
            "user-namespace",
            &format!(
                "{map}; stat -c %u:%g /etc/passwd /v /dev/shm /etc/hosts /proc/1; echo x > /v/x && stat -c %u /v/x; \
                 cat /s/password /c/key; echo; : > /dev/null; touch /made; {{ echo mine > /proc/sys/kernel/hostname; }} 2> /dev/null || echo ro; \
                 cat /proc/sys/kernel/hostname > /dev/stdout"
            ),
            json!({ "hostUsers": false, "hostname": "inside", "volumes": volumes, "containers": [{ "volumeMounts": mounts }] }),
            "0 65536\n0:0\n0:0\n0:0\n0:0\n0:0\n0\nhunter2value\nro\ninside",
        ),
        FieldCase::prints(
            "user-namespace-of-user",
            "id -u; touch /v/x; stat -c %u:%g /v/x; echo out > /dev/stdout",
            json!({ "hostUsers": false, "volumes": [{ "name": "v", "emptyDir": {} }],
                "securityContext": { "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000 },
                "containers": [{ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }] }),
            "1000\n1000:3000\nout",
        ),
        FieldCase::prints(
            "user-namespace-shared-processes",
            "cat /proc/1/comm; stat -c %u /proc/1; mount -t tmpfs none /mnt && echo mounted",
            json!({ "hostUsers": false, "shareProcessNamespace": true,
                "containers": [{ "securityContext": { "capabilities": { "add": ["SYS_ADMIN", "NET_ADMIN"] } } }] }),
            "pause\n65535\nmounted",
        ),
    ]
}

/// A user other than root can open its standard output by its path.
fn standard_output_cases() -> Vec<FieldCase> {
    vec![FieldCase::prints(
        "standard-output",
        "echo out > /dev/stdout; echo err > /dev/stderr",
        json!({ "securityContext": { "runAsUser": 1000 } }),
        "out\nerr",
    )]
}

/// A pod that the kubelet ends because of what it writes.
fn storage_case(name: &'static str, script: &str, changes: Value, message: &'static str) -> FieldCase {
    let status = vec![
        ("/status/phase", json!("Failed")),
        ("/status/reason", json!("Evicted")),
        ("/status/message", json!(message)),
    ];
    FieldCase::reaches(name, &format!("{script}; sleep 1000"), changes, status)
}

fn storage_cases() -> Vec<FieldCase> {
    let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
    vec![
        storage_case(
            "size-limit",
            "head -c 20000000 /dev/zero > /v/x",
            json!({ "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "10Mi" } }], "containers": [{ "volumeMounts": mounts }] }),
            "Usage of EmptyDir volume \"v\" exceeds the limit \"10Mi\". ",
        ),
        storage_case(
            "storage-limit",
            "head -c 20000000 /dev/zero > /x",
            json!({ "containers": [{ "resources": { "limits": { "ephemeral-storage": "10Mi" } } }] }),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
        ),
    ]
}

fn lifecycle_cases() -> Vec<FieldCase> {
    let state = "/status/containerStatuses/0/state/terminated";
    let exit = move |code: i64| (format!("{state}/exitCode").leak() as &'static str, json!(code));
    let rule = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
    let sidecar = json!({ "name": "side", "image": "nginx", "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always",
        "command": ["bash", "-c", "touch /shared/up; sleep 1000"],
        "startupProbe": { "exec": { "command": ["test", "-e", "/shared/up"] }, "periodSeconds": 1 },
        "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }] });
    vec![
        FieldCase::reaches("exit-code", "exit 3", json!({}), vec![("/status/phase", json!("Failed")), exit(3)]),
        FieldCase::reaches(
            "restart-rule",
            "test -e /v/again && exit 7; touch /v/again; exit 42",
            json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "containers": [{ "restartPolicy": "Never",
                "restartPolicyRules": rule, "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }] }),
            vec![("/status/phase", json!("Failed")), exit(7), ("/status/containerStatuses/0/restartCount", json!(1))],
        ),
        FieldCase {
            output: Some("2"),
            ..FieldCase::reaches(
                "restart-all-containers",
                "test -e /v/again && { wc -l < /v/log; exit 0; }; sleep 1; touch /v/again; exit 42",
                {
                    let rule = json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
                    let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
                    let init = json!({ "name": "i", "image": "nginx", "imagePullPolicy": "IfNotPresent",
                        "command": ["bash", "-c", "echo init >> /v/log"], "volumeMounts": mounts });
                    json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "initContainers": [init],
                        "containers": [{ "restartPolicy": "Never", "restartPolicyRules": rule, "volumeMounts": mounts }] })
                },
                vec![
                    ("/status/phase", json!("Succeeded")),
                    ("/status/containerStatuses/0/restartCount", json!(1)),
                    ("/status/containerStatuses/0/lastState/terminated/reason", json!("RestartingAllContainers")),
                    ("/status/initContainerStatuses/0/restartCount", json!(1)),
                ],
            )
        },
        FieldCase::prints(
            "sidecar",
            "ls /shared",
            json!({ "initContainers": [sidecar], "volumes": [{ "name": "shared", "emptyDir": {} }],
                "containers": [{ "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }] }] }),
            "up",
        ),
        FieldCase::reaches(
            "termination-message",
            "echo -n farewell > /dev/termination-log; exit 1",
            json!({}),
            vec![("/status/containerStatuses/0/state/terminated/message", json!("farewell"))],
        ),
        FieldCase::reaches(
            "message-from-logs",
            "echo last words; exit 1",
            json!({ "containers": [{ "terminationMessagePolicy": "FallbackToLogsOnError" }] }),
            vec![("/status/containerStatuses/0/state/terminated/message", json!("last words\n"))],
        ),
        FieldCase::reaches(
            "deadline",
            "sleep 1000",
            json!({ "activeDeadlineSeconds": 2 }),
            vec![("/status/phase", json!("Failed")), ("/status/reason", json!("DeadlineExceeded"))],
        ),
        FieldCase::reaches(
            "post-start",
            "sleep 1000",
            json!({ "restartPolicy": "Always", "containers": [{ "lifecycle": { "postStart": { "exec": { "command": ["touch", "/hooked"] } } },
                "readinessProbe": { "exec": { "command": ["test", "-e", "/hooked"] }, "periodSeconds": 1 } }] }),
            vec![("/status/containerStatuses/0/ready", json!(true))],
        ),
        FieldCase::reaches(
            "failed-init",
            "true",
            json!({ "initContainers": [{ "name": "i", "image": "nginx", "imagePullPolicy": "IfNotPresent", "command": ["false"] }] }),
            vec![
                ("/status/phase", json!("Failed")),
                ("/status/initContainerStatuses/0/state/terminated/exitCode", json!(1)),
            ],
        ),
        FieldCase::reaches(
            "quality-of-service",
            "sleep 1000",
            json!({ "containers": [{ "resources": { "limits": { "cpu": "100m", "memory": "64Mi" } } }] }),
            vec![("/status/qosClass", json!("Guaranteed")), ("/status/phase", json!("Running"))],
        ),
    ]
}

fn network_cases() -> Vec<FieldCase> {
    vec![
        FieldCase::prints("host-name", "hostname", json!({ "hostname": "other" }), "other"),
        FieldCase::prints(
            "host-aliases",
            "grep example /etc/hosts",
            json!({ "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["a.example", "b.example"] }] }),
            "192.0.2.7\ta.example\tb.example",
        ),
        FieldCase::prints(
            "dns-config",
            "cat /etc/resolv.conf",
            json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["192.0.2.53"], "searches": ["x.example"],
                "options": [{ "name": "ndots", "value": "3" }] } }),
            "search x.example\nnameserver 192.0.2.53\noptions ndots:3",
        ),
        FieldCase::prints(
            "shared-processes",
            "tr '\\0' ' ' < /proc/1/cmdline | grep -c bash || echo shared",
            json!({ "shareProcessNamespace": true }),
            "0\nshared",
        ),
    ]
}

/// A changed ConfigMap shows in the volume of a running pod at once.
fn update_config_map(cluster: &TestCluster) {
    let container = json!({ "name": "c", "image": "nginx", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "1000"],
        "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let volumes = json!([{ "name": "v", "configMap": { "name": "changing" } }]);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "follower", "labels": { "app": "follower" } },
        "spec": { "containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1 } });
    cluster.kubectl("create configmap changing --from-literal=key=old").expect_success();
    cluster.kubectl_args(&["create", "-f", "-"], Some(&pod.to_string())).expect_success();
    cluster.running("app=follower", 1);
    let read = || cluster.kubectl("exec follower -- cat /v/key").stdout;
    eventually("the first value", || if read() == "old" { Ok(()) } else { Err(read()) });
    let patched = std::time::Instant::now();
    cluster.kubectl_args(&["patch", "configmap", "changing", "-p", r#"{"data":{"key":"new"}}"#], None).expect_success();
    eventually("the second value", || if read() == "new" { Ok(()) } else { Err(read()) });
    // Without a watch it takes up to a minute.
    assert!(patched.elapsed().as_secs() < 10, "{:?}", patched.elapsed());
}

/// An ephemeral container is added to a running pod and sees its processes.
fn start_ephemeral_container(cluster: &TestCluster) {
    let container = json!({ "name": "debugger", "image": "nginx", "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-c", "echo debugging $(hostname)"] });
    let patch = json!({ "spec": { "ephemeralContainers": [container] } }).to_string();
    let args = ["patch", "pod", "quality-of-service", "--subresource", "ephemeralcontainers", "-p", &patch];
    cluster.kubectl_args(&args, None).expect_success();
    eventually("the ephemeral container", || {
        let pod = cluster.get("pod quality-of-service").remove(0);
        let code = pod.pointer("/status/ephemeralContainerStatuses/0/state/terminated/exitCode").cloned();
        if code == Some(json!(0)) { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    let log = cluster.kubectl("logs quality-of-service -c debugger").expect_success();
    assert_eq!(log, "debugging quality-of-service\n");
}

/// New resources reach the container without a restart, and the pod's status.
fn resize_in_place(cluster: &TestCluster) {
    let container = json!({ "name": "c", "resources": { "requests": { "cpu": "200m", "memory": "96Mi" },
        "limits": { "cpu": "200m", "memory": "96Mi" } } });
    let patch = json!({ "spec": { "containers": [container] } }).to_string();
    let args = ["patch", "pod", "quality-of-service", "--subresource", "resize", "-p", &patch];
    cluster.kubectl_args(&args, None).expect_success();
    eventually("the new resources", || {
        let pod = cluster.get("pod quality-of-service").remove(0);
        let status = &pod["status"]["containerStatuses"][0];
        let done = status["resources"]["limits"]["cpu"] == "200m" && status["allocatedResources"]["memory"] == "96Mi";
        if done && status["restartCount"] == 0 { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    let script = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || \
        cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max";
    let limits = cluster.kubectl_args(&["exec", "quality-of-service", "-c", "c", "--", "bash", "-c", script], None);
    let limits = limits.expect_success();
    assert!(limits.starts_with("20000") && limits.contains("100663296"), "{limits}");
}

/// A server that is not gRPC fails its probe, with upstream's words.
fn probe_grpc_server(cluster: &TestCluster) {
    let container = json!({ "name": "c", "image": "nginx", "imagePullPolicy": "IfNotPresent",
        "readinessProbe": { "grpc": { "port": 80 }, "periodSeconds": 1 } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "grpc" }, "spec": { "containers": [container] } });
    cluster.kubectl_args(&["create", "-f", "-"], Some(&pod.to_string())).expect_success();
    eventually("a failed gRPC probe", || {
        let events = cluster.kubectl("get events --field-selector involvedObject.name=grpc,reason=Unhealthy").stdout;
        if events.contains("Readiness probe failed: ") { Ok(()) } else { Err(events) }
    });
}

/// The kubelet's summary and list of running pods name a pod that runs.
fn report_usage(cluster: &TestCluster, node: &str) {
    let read = |path: &str| -> Value {
        let text = cluster.kubectl(&format!("get --raw /api/v1/nodes/{node}/proxy/{path}")).expect_success();
        serde_json::from_str(&text).expect("JSON")
    };
    let summary = read("stats/summary");
    let pods = summary["pods"].as_array().expect("pods");
    let pod = pods.iter().find(|pod| pod["podRef"]["name"] == "quality-of-service").expect("the pod");
    let container = pod["containers"].as_array().expect("containers").iter().find(|one| one["name"] == "c");
    assert!(container.is_some_and(|one| one["memory"]["workingSetBytes"].as_u64() > Some(0)), "{pod}");
    assert!(summary["node"]["fs"]["capacityBytes"].as_u64() > Some(0), "{summary}");
    let running = read("runningpods/");
    let names: Vec<_> =
        running["items"].as_array().expect("items").iter().map(|pod| &pod["metadata"]["name"]).collect();
    assert!(names.contains(&&json!("quality-of-service")), "{names:?}");
}
