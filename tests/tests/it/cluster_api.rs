//! Cluster API's manager, unmodified: an operator on controller-runtime with thirteen definitions in two versions, a webhook that
//! converts them, twenty that default and validate, a leader's lease, the rights of its own roles, and metrics that ask
//! who reads them.

mod world;

use self::world::ClusterApiTest;
use ferry_tests::{eventually, skip_reason, upstream};
use serde_json::{Value, json};

const OLD: &str = "machinedeployments.v1beta1.cluster.x-k8s.io";
const NEW: &str = "machinedeployments.v1beta2.cluster.x-k8s.io";

#[test]
fn the_manager_of_cluster_api_runs() {
    if skip_reason().is_some() {
        return;
    }
    let Some(program) = upstream::build_program("cluster-api") else { return };
    let world = ClusterApiTest::start(program);
    without_the_manager(&world, "no webhook answers before it starts");
    let manager = world.manager();
    let first = leader(&world, "");
    webhooks_refuse(&world);
    create_in_the_old_version(&world);
    read_in_both_versions(&world);
    write_in_both_versions(&world);
    owned_in_both_versions(&world);
    the_manager_reconciles(&world);
    metrics_are_for_those_who_may(&world);

    drop(manager);
    without_the_manager(&world, "no webhook answers after it ended");
    without_conversion(&world);
    let _manager = world.manager();
    read_in_both_versions(&world);
    leader(&world, &first);
    remove(&world);
}

/// The holder of the lease, once it differs from `before`.
fn leader(world: &ClusterApiTest, before: &str) -> String {
    eventually("the lease has a holder", || {
        let line = "get lease controller-leader-election-capi -n capi-system -o jsonpath={.spec.holderIdentity}";
        let holder = world.cluster.kubectl(line);
        let new = holder.code == 0 && !holder.stdout.is_empty() && holder.stdout != before;
        if new { Ok(holder.stdout) } else { Err(holder.stderr) }
    })
}

fn cluster(name: &str, reference: &Value) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}}, "infrastructureRef": reference,
            "controlPlaneEndpoint": {"host": "192.0.2.9", "port": 6443}}})
}

fn boat(kind: &str) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "name": "fleet"})
}

fn without_the_manager(world: &ClusterApiTest, when: &str) {
    let refused = world.apply(&cluster("early", &boat("BoatCluster"))).expect_failure();
    let why = "Internal error occurred: failed calling webhook \"default.cluster.cluster.x-k8s.io\": failed to call \
        webhook: Post \"https://capi-webhook-service.capi-system.svc:443/mutate-cluster-x-k8s-io-v1beta2-cluster?timeout=10s\": \
        dial tcp 192.0.2.2:9443: connect: connection refused";
    // To ask that webhook the object is converted first, by the same manager.
    let conversion = "Internal error occurred: Internal error occurred: conversion webhook for cluster.x-k8s.io/v1beta1, Kind=Cluster failed: Post \
        \"https://capi-webhook-service.capi-system.svc:443/convert?timeout=30s\": dial tcp 192.0.2.2:9443: connect: \
        connection refused";
    assert!(refused.contains(conversion), "{when}: {refused}");
    let mut newer = cluster(
        "early",
        &json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BoatCluster",
        "name": "fleet"}),
    );
    newer["apiVersion"] = "cluster.x-k8s.io/v1beta2".into();
    let refused = world.apply(&newer).expect_failure();
    assert!(refused.contains(why), "{when}: {refused}");
}

fn webhooks_refuse(world: &ClusterApiTest) {
    let refused = world.apply(&cluster("bare", &Value::Null)).expect_failure();
    let why = "The Cluster \"bare\" is invalid: spec: Forbidden: one of spec.controlPlaneRef, spec.infrastructureRef or \
        spec.topology must be set";
    assert!(refused.contains(why), "{refused}");
    let text = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "bare"},
        "spec": {"clusterNetwork": {"serviceDomain": "local"}}})
    .to_string();
    let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters";
    let told = world.cluster.kubectl_args(&["create", "--raw", path, "-f", "-", "-v=8"], Some(&text));
    // The log quotes what quotes.
    let refused = told.expect_failure().replace('\\', "");
    let why = "admission webhook \"validation.cluster.cluster.x-k8s.io\" denied the request: Cluster.cluster.x-k8s.io \
        \"bare\" is invalid: spec: Forbidden: one of";
    assert!(refused.contains(why), "{refused}");
}

fn create_in_the_old_version(world: &ClusterApiTest) {
    let _old = world.watch("old", OLD, "{.apiVersion} {.spec.template.spec.nodeDrainTimeout}");
    let _new = world.watch("new", NEW, "{.apiVersion} {.spec.template.spec.deletion.nodeDrainTimeoutSeconds}");
    for (kind, spec) in
        [("BoatCluster", json!({})), ("BoatMachineTemplate", json!({"template": {"spec": {"length": 7}}}))]
    {
        let group = "infrastructure.cluster.x-k8s.io/v1beta1";
        let object = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "fleet"}, "spec": spec});
        world.apply(&object).expect_success();
    }
    let told = world.apply(&cluster("fleet", &boat("BoatCluster")));
    assert!(told.stderr.contains("cluster.x-k8s.io/v1beta1 Cluster is deprecated"), "{}", told.stderr);
    told.expect_success();
    let deployment = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment",
        "metadata": {"name": "boats"}, "spec": {"clusterName": "fleet", "template": {"spec": {"clusterName": "fleet",
            "version": "1.36.4", "nodeDrainTimeout": "90s", "bootstrap": {"dataSecretName": "boot"},
            "infrastructureRef": boat("BoatMachineTemplate")}}}});
    world.apply(&deployment).expect_success();
    world.told("old", "cluster.x-k8s.io/v1beta1 1m30s");
    world.told("new", "cluster.x-k8s.io/v1beta2 90");
}

/// Each version has its own fields, and both what the webhooks filled in.
fn read_in_both_versions(world: &ClusterApiTest) {
    let (old, new) = (world.one(&format!("{OLD} boats")), world.one(&format!("{NEW} boats")));
    let (before, now) = (&old["spec"]["template"]["spec"], &new["spec"]["template"]["spec"]);
    assert_eq!((&before["nodeDrainTimeout"], &before["deletion"]), (&json!("1m30s"), &Value::Null));
    assert_eq!((&now["deletion"]["nodeDrainTimeoutSeconds"], &now["nodeDrainTimeout"]), (&json!(90), &Value::Null));
    let group = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BoatMachineTemplate", "name": "fleet"});
    assert_eq!(now["infrastructureRef"], group);
    assert_eq!(before["infrastructureRef"]["apiVersion"], "infrastructure.cluster.x-k8s.io/v1beta1");
    assert_eq!(old["spec"]["strategy"], new["spec"]["rollout"]["strategy"]);
    for object in [&old, &new] {
        assert_eq!(object["spec"]["template"]["spec"]["version"], "v1.36.4", "{object}");
        assert_eq!(object["metadata"]["labels"], json!({"cluster.x-k8s.io/cluster-name": "fleet"}));
        assert_eq!(object["metadata"]["uid"], new["metadata"]["uid"]);
    }
    assert_eq!(new["spec"]["selector"]["matchLabels"]["cluster.x-k8s.io/deployment-name"], "boats");
    let path = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default/clusters?labelSelector=!nothing";
    let list: Value =
        serde_json::from_str(&world.cluster.kubectl(&format!("get --raw {path}")).expect_success()).expect("JSON");
    assert_eq!(list["items"][0]["spec"]["infrastructureRef"]["apiVersion"], boat("BoatCluster")["apiVersion"]);
}

fn write_in_both_versions(world: &ClusterApiTest) {
    let patch = |resource: &str, patch: &Value| {
        let arguments = ["patch", resource, "boats", "--type=merge", "-p", &patch.to_string()];
        world.cluster.kubectl_args(&arguments, None)
    };
    patch(NEW, &json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}}}}))
        .expect_success();
    assert_eq!(world.one(&format!("{OLD} boats"))["spec"]["template"]["spec"]["nodeDrainTimeout"], "1m0s");
    patch(OLD, &json!({"spec": {"template": {"spec": {"nodeDrainTimeout": "90s"}}}})).expect_success();
    let now = world.one(&format!("{NEW} boats"));
    assert_eq!(now["spec"]["template"]["spec"]["deletion"]["nodeDrainTimeoutSeconds"], 90);
    let refused = patch(OLD, &json!({"spec": {"clusterName": "other"}})).expect_failure();
    assert!(refused.contains("spec.clusterName: Forbidden: field is immutable"), "{refused}");
}

/// A field has one manager, whatever its name in the applied version.
fn owned_in_both_versions(world: &ClusterApiTest) {
    let apply = |version: &str, manager: &str, deletion: Value| {
        let mut spec = json!({"clusterName": "fleet", "bootstrap": {"dataSecretName": "boot"}});
        spec.as_object_mut().expect("a map").extend(deletion.as_object().expect("a map").clone());
        let reference = boat("BoatMachineTemplate");
        spec["infrastructureRef"] = match version {
            "v1beta1" => reference,
            _ => json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BoatMachineTemplate", "name": "fleet"}),
        };
        let object = json!({"apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "MachineDeployment",
            "metadata": {"name": "owned"}, "spec": {"clusterName": "fleet", "replicas": 0, "template": {"spec": spec}}});
        let manager = format!("--field-manager={manager}");
        world.cluster.kubectl_args(&["apply", "--server-side", &manager, "-f", "-"], Some(&object.to_string()))
    };
    apply("v1beta1", "alice", json!({"nodeDrainTimeout": "90s"})).expect_success();
    apply("v1beta2", "bob", json!({"deletion": {"nodeDrainTimeoutSeconds": 90}})).expect_success();
    let refused = apply("v1beta2", "bob", json!({"deletion": {"nodeDrainTimeoutSeconds": 60}})).expect_failure();
    let why = "conflict with \"alice\": .spec.template.spec.nodeDrainTimeout";
    assert!(refused.contains(why), "{refused}");
    world.cluster.kubectl("delete machinedeployment owned").expect_success();
}

/// The cluster gets its finalizer and conditions; machines come, each with a clone of the template, and follow the scale.
fn the_manager_reconciles(world: &ClusterApiTest) {
    let provisioned = json!({"status": {"initialization": {"provisioned": true}}}).to_string();
    let arguments = ["patch", "boatcluster", "fleet", "--subresource=status", "--type=merge", "-p", &provisioned];
    world.cluster.kubectl_args(&arguments, None).expect_success();
    let wait = "wait cluster/fleet --timeout=90s --for";
    world.cluster.kubectl(&format!("{wait}=condition=InfrastructureReady")).expect_success();
    world.cluster.kubectl(&format!("{wait}=jsonpath={{.status.phase}}=Provisioned")).expect_success();
    let object = world.one("cluster fleet");
    assert_eq!(object["metadata"]["finalizers"], json!(["cluster.cluster.x-k8s.io"]));
    let owner = world.one("boatcluster fleet");
    assert_eq!(owner["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"]);
    until_machines(world, 1);
    world.cluster.kubectl("scale machinedeployment boats --replicas=3").expect_success();
    until_machines(world, 3);
}

fn until_machines(world: &ClusterApiTest, count: usize) {
    eventually(&format!("{count} machines"), || {
        let machines = world.cluster.get("boatmachines");
        let sets = world.cluster.get("machinesets -l cluster.x-k8s.io/deployment-name=boats");
        let cloned = machines.iter().all(|machine| machine["spec"] == json!({"length": 7}));
        let whole = sets.first().is_some_and(|set| set["status"]["replicas"] == count);
        if machines.len() == count && cloned && whole { Ok(()) } else { Err(format!("{machines:?} {sets:?}")) }
    });
}

fn metrics_are_for_those_who_may(world: &ClusterApiTest) {
    let token = format!("--token={}", world.token("capi-manager"));
    let ask = || world.asked("https", 8443, &["/metrics", &token]);
    let refused = ask().expect_failure();
    let why = "Authorization denied for user system:serviceaccount:capi-system:capi-manager";
    assert!(refused.contains(why), "{refused}");
    world.cluster.kubectl("create clusterrole reader --verb=get --non-resource-url=/metrics").expect_success();
    let to = "--clusterrole=reader --serviceaccount=capi-system:default";
    world.cluster.kubectl(&format!("create clusterrolebinding reader {to}")).expect_success();
    let token = format!("--token={}", world.token("default"));
    let page = world.asked("https", 8443, &["/metrics", &token]).expect_success();
    assert!(page.contains("controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/convert\"}"), "{page}");
}

/// The stored version can be read; other versions need the webhook.
fn without_conversion(world: &ClusterApiTest) {
    world.one(&format!("{NEW} boats"));
    let why = "Error from server: conversion webhook for cluster.x-k8s.io/v1beta2, Kind=MachineDeployment failed: Post \"https://capi-webhook-service.capi-system.svc:443/convert?timeout=30s\": dial tcp 192.0.2.2:9443: connect: \
        connection refused";
    for line in [format!("get {OLD} boats"), format!("label {OLD} boats a=b"), format!("delete {OLD} boats")] {
        let refused = world.cluster.kubectl(&line).expect_failure();
        assert!(refused.contains(why), "{refused}");
    }
}

/// The manager takes down what it made, and then lets the cluster go.
fn remove(world: &ClusterApiTest) {
    world.cluster.kubectl("delete cluster fleet --timeout=90s").expect_success();
    let kinds = "clusters,machinedeployments,machinesets,machines,boatmachines,boatclusters";
    assert_eq!(world.cluster.kubectl(&format!("get {kinds} -o name")).expect_success(), "");
}
