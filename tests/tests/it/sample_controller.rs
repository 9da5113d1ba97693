//! Upstream's sample controller, unmodified: its `Foo` becomes a Deployment with running pods, follows it, and takes it along
//! when it goes.

use std::path::{Path, PathBuf};

use ferry_tests::{
    TestCluster, eventually, skip_reason,
    upstream::{self, HostDaemon},
};
use serde_json::{Value, json};

struct SampleControllerTest {
    // It ends before its cluster.
    _controller: HostDaemon,
    cluster: TestCluster,
    examples: PathBuf,
}

impl SampleControllerTest {
    fn start(program: &Path) -> Self {
        let examples = upstream::module_dir("sample-controller", "k8s.io/sample-controller").join("artifacts/examples");
        let cluster = TestCluster::up();
        let definition = examples.join("crd-status-subresource.yaml");
        cluster.kubectl(&format!("apply -f {}", definition.display())).expect_success();
        cluster
            .kubectl("wait crd/foos.samplecontroller.k8s.io --for=condition=Established --timeout=90s")
            .expect_success();
        let flag = format!("--kubeconfig={}", cluster.kubeconfig().display());
        let controller = HostDaemon::start(&cluster.host, program, &[flag]);
        Self { _controller: controller, cluster, examples }
    }

    fn one(&self, what: &str) -> Value {
        self.cluster.get(what).remove(0)
    }

    /// Waits until a Foo says that so many replicas are there.
    fn until_available(&self, name: &str, count: u64) {
        eventually(&format!("{count} replicas in the status of {name}"), || {
            let object = self.one(&format!("foo {name}"));
            if object["status"]["availableReplicas"] == count { Ok(()) } else { Err(object.to_string()) }
        });
    }

    /// Waits for an event about a Foo.
    fn event(&self, name: &str, reason: &str) -> Value {
        let line = format!("events --field-selector involvedObject.name={name},reason={reason}");
        eventually(&format!("an event {reason} of {name}"), || {
            self.cluster.get(&line).into_iter().find(|event| event["kind"] == "Event").ok_or("there is none".to_owned())
        })
    }
}

#[test]
fn the_sample_controller_runs_foos() {
    if skip_reason().is_some() {
        return;
    }
    let Some(program) = upstream::build_program("sample-controller") else { return };
    let world = SampleControllerTest::start(&program);
    a_foo_becomes_a_deployment(&world);
    the_deployment_follows(&world);
    a_deleted_deployment_comes_back(&world);
    a_name_that_is_taken_is_told(&world);
    a_foo_takes_its_deployment_along(&world);
}

fn a_foo_becomes_a_deployment(world: &SampleControllerTest) {
    let cluster = &world.cluster;
    cluster.kubectl(&format!("apply -f {}", world.examples.join("example-foo.yaml").display())).expect_success();
    cluster.running("controller=example-foo", 1);
    let example = world.one("foo example-foo");
    let owner = json!([{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "example-foo",
        "uid": example["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(world.one("deployment example-foo")["metadata"]["ownerReferences"], owner);
    world.until_available("example-foo", 1);
    let event = world.event("example-foo", "Synced");
    assert_eq!((&event["message"], &event["type"]), (&json!("Foo synced successfully"), &json!("Normal")));
    assert_eq!(event["source"], json!({"component": "sample-controller"}));
    let written = cluster.get("foo example-foo --show-managed-fields").remove(0)["metadata"]["managedFields"].take();
    let by = |entry: &Value| entry["manager"] == "sample-controller" && entry["subresource"] == "status";
    assert!(written.as_array().is_some_and(|entries| entries.iter().any(by)), "{written}");
}

fn the_deployment_follows(world: &SampleControllerTest) {
    let cluster = &world.cluster;
    let scale = |count: u32| {
        let patch = format!("{{\"spec\": {{\"replicas\": {count}}}}}");
        cluster.kubectl_args(&["patch", "foo", "example-foo", "--type=merge", "-p", &patch], None)
    };
    let refused = scale(11).expect_failure();
    let why = "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10";
    assert!(refused.contains(why), "{refused}");
    scale(3).expect_success();
    cluster.running("controller=example-foo", 3);
    world.until_available("example-foo", 3);
    let example = world.one("foo example-foo");
    assert_eq!(example["metadata"]["generation"], 2, "only a change of the spec counts");
}

fn a_deleted_deployment_comes_back(world: &SampleControllerTest) {
    let before = world.one("deployment example-foo")["metadata"]["uid"].take();
    world.cluster.kubectl("delete deployment example-foo").expect_success();
    eventually("another deployment", || {
        let found = world.cluster.kubectl("get deployment example-foo -o jsonpath={.metadata.uid}");
        if found.code == 0 && before != found.stdout { Ok(()) } else { Err(found.stderr) }
    });
    world.cluster.running("controller=example-foo", 3);
    world.until_available("example-foo", 3);
}

fn a_name_that_is_taken_is_told(world: &SampleControllerTest) {
    let cluster = &world.cluster;
    cluster.kubectl("create deployment taken --image=nginx --replicas=0").expect_success();
    let late = json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "late"},
        "spec": {"deploymentName": "taken"}});
    cluster.kubectl_args(&["apply", "-f", "-"], Some(&late.to_string())).expect_success();
    let event = world.event("late", "ErrResourceExists");
    let told = "Resource \"taken\" already exists and is not managed by Foo";
    assert_eq!((&event["message"], &event["type"]), (&json!(told), &json!("Warning")));
    assert_eq!(world.one("deployment taken")["metadata"]["ownerReferences"], Value::Null);
    cluster.kubectl("delete foo late").expect_success();
    cluster.kubectl("get deployment taken").expect_success();
}

fn a_foo_takes_its_deployment_along(world: &SampleControllerTest) {
    world.cluster.kubectl("delete foo example-foo").expect_success();
    eventually("nothing of the Foo is left", || {
        let left = world.cluster.kubectl("get deployments,replicasets,pods -o name").expect_success();
        let left: Vec<&str> = left.lines().filter(|name| !name.contains("/taken")).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(" ")) }
    });
}
