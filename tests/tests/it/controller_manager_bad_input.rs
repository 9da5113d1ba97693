//! Objects that contradict themselves: the controller manager says so as upstream's does, and comes to rest.

use ferry_tests::{TestApiServer, eventually};

use crate::kube_controller_manager::{ControllerManager, expect_rest};

const OBJECTS: &str = r#"
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: first}
spec: {replicas: 2, selector: {matchLabels: {app: shared}}, template: {metadata: {labels: {app: shared}}, spec: {containers: [{name: c, image: example.com/c}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: second}
spec: {replicas: 3, selector: {matchLabels: {app: shared}}, template: {metadata: {labels: {app: shared}}, spec: {containers: [{name: c, image: example.com/c}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: never-matches}
spec:
  backoffLimit: 0
  podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {containerName: c, operator: In, values: [42]}}]}
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/c}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: targetless}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: absent}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: impossible}
spec: {schedule: "59 23 31 2 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/c}]}}}}}
"#;

/// Expects that a command prints a text at some time.
#[track_caller]
fn expect_output(server: &TestApiServer, command: &str, expected: &str) {
    eventually(command, || match server.kubectl(command).stdout {
        output if output.contains(expected) => Ok(()),
        output => Err(output),
    });
}

#[test]
fn contradictory_objects_are_reported_and_cause_no_busy_loop() {
    let server = TestApiServer::start();
    let flags = ["--leader-elect=false", "--horizontal-pod-autoscaler-sync-period=2s"];
    let _manager = ControllerManager::start(&server, "manager", &flags);
    eventually("a service account", || match server.kubectl("get serviceaccount default").stderr {
        error if error.is_empty() => Ok(()),
        error => Err(error),
    });
    server.kubectl_args(&["create", "-f", "-"], Some(OBJECTS)).expect_success();

    // Each keeps to its own pods.
    expect_output(&server, "get rs first -o jsonpath={.status.replicas}/{.status.fullyLabeledReplicas}", "2/2");
    expect_output(&server, "get rs second -o jsonpath={.status.replicas}/{.status.fullyLabeledReplicas}", "3/3");
    assert_eq!(server.kubectl("get pods -l app=shared -o name").expect_success().lines().count(), 5);

    expect_output(&server, "get pods -l job-name=never-matches -o name", "pod/never-matches-");
    let pod = server.kubectl("get pods -l job-name=never-matches -o name").expect_success();
    let terminated = r#"{"status": {"phase": "Failed", "containerStatuses": [{"name": "c", "image": "c", "imageID": "c",
        "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}]}}"#;
    server.kubectl_args(&["patch", pod.trim(), "--subresource=status", "-p", terminated], None).expect_success();
    let conditions = "get job never-matches -o jsonpath={.status.conditions[*].reason}";
    expect_output(&server, conditions, "BackoffLimitExceeded");

    expect_output(&server, "get hpa targetless -o jsonpath={.status.conditions[*].reason}", "FailedGetScale");
    let events = "get events -o jsonpath={.items[*].message}";
    expect_output(&server, events, "deployments.apps \"absent\" not found");
    let impossible = "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second";
    expect_output(&server, events, impossible);
    // An autoscaler asks for its target in every period.
    server.kubectl("delete hpa targetless").expect_success();
    expect_rest(&server);
}

#[test]
fn owner_loop_is_kept_at_rest_and_deleted_in_the_foreground() {
    let server = TestApiServer::start();
    let _manager = ControllerManager::start(&server, "manager", &["--leader-elect=false"]);
    let uid =
        |name: &str| server.kubectl(&format!("get configmap {name} -o jsonpath={{.metadata.uid}}")).expect_success();
    for name in ["a", "b"] {
        server.kubectl(&format!("create configmap {name}")).expect_success();
    }
    for (name, owner) in [("a", "b"), ("b", "a")] {
        let reference = format!(
            r#"{{"metadata": {{"ownerReferences": [{{"apiVersion": "v1", "kind": "ConfigMap", "name": "{owner}", "uid": "{}", "blockOwnerDeletion": true}}]}}}}"#,
            uid(owner)
        );
        server.kubectl_args(&["patch", "configmap", name, "-p", &reference], None).expect_success();
    }
    expect_rest(&server);
    server.kubectl("get configmap a b").expect_success();
    server.kubectl("delete configmap a --cascade=foreground --timeout=60s").expect_success();
    eventually("both are gone", || match server.kubectl("get configmap a b --ignore-not-found").stdout {
        output if output.is_empty() => Ok(()),
        output => Err(output),
    });
}
