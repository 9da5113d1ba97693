//! A StatefulSet with a volume template runs on a new cluster: its claims get directories of the node.

use ferry_tests::{TestCluster, eventually, skip_reason};
use serde_json::json;

#[test]
fn claims_of_a_stateful_set_get_volumes_that_keep_their_data() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "serviceName": "db", "replicas": 1,
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "nginx", "image": "nginx", "imagePullPolicy": "IfNotPresent",
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }],
        },
    });
    cluster.kubectl_args(&["apply", "-f", "-"], Some(&set.to_string())).expect_success();
    cluster.running("app=db", 1);
    cluster.kubectl("exec db-0 -- touch /data/file").expect_success();
    cluster.kubectl("delete pod db-0").expect_success();
    cluster.running("app=db", 1);
    cluster.kubectl("exec db-0 -- test -e /data/file").expect_success();

    let shared = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "shared" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    cluster.kubectl_args(&["apply", "-f", "-"], Some(&shared.to_string())).expect_success();
    let overrides = json!({ "spec": {
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "shared" } }],
    } });
    let overrides = format!("--overrides={overrides}");
    cluster.kubectl_args(&["run", "reader", "--image=nginx", &overrides], None).expect_success();
    eventually("an event names the access mode", || {
        let events = cluster.kubectl("get events --field-selector reason=ProvisioningFailed").expect_success();
        if events.contains("ReadWriteMany") { Ok(()) } else { Err(events) }
    });

    let volume = cluster.get("pvc data-db-0").remove(0)["spec"]["volumeName"].as_str().unwrap().to_owned();
    let directory = cluster.host.data_dir().join("local-path").join(volume);
    assert!(directory.join("file").exists());
    cluster.kubectl("delete statefulset db").expect_success();
    cluster.kubectl("delete pvc data-db-0").expect_success();
    eventually("volume and directory are removed", || {
        let volumes = cluster.kubectl("get pv -o name").expect_success();
        if volumes.trim().is_empty() && !directory.exists() { Ok(()) } else { Err(volumes) }
    });
}
