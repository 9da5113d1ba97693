//! `kubectl top` and a HorizontalPodAutoscaler see the usage of pods on a new cluster.

use ferry_tests::{TestCluster, eventually, skip_reason};
use serde_json::json;

#[test]
fn usage_of_nodes_and_pods_is_served_and_scales_a_deployment() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "busy" },
        "spec": {
            "selector": { "matchLabels": { "app": "busy" } },
            "template": {
                "metadata": { "labels": { "app": "busy" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "loop", "image": "nginx", "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", "while :; do :; done"],
                        "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "100m" } },
                    }],
                },
            },
        },
    });
    cluster.kubectl_args(&["apply", "-f", "-"], Some(&deployment.to_string())).expect_success();
    cluster.running("app=busy", 1);
    cluster.kubectl("wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io").expect_success();
    cluster.kubectl("autoscale deployment busy --min=1 --max=2 --cpu-percent=50").expect_success();

    let pod_line = eventually("the pod has metrics", || {
        let top = cluster.kubectl("top pods --selector app=busy --no-headers");
        if top.stdout.starts_with("busy-") { Ok(top.stdout) } else { Err(top.stderr) }
    });
    let cpu = pod_line.split_whitespace().nth(1).unwrap().trim_end_matches('m');
    assert!(cpu.parse::<u32>().unwrap() > 10, "{pod_line}");
    let nodes = cluster.kubectl("top nodes").expect_success();
    assert!(nodes.contains('%'), "{nodes}");
    let table = cluster.kubectl("get pods.metrics.k8s.io").expect_success();
    assert!(table.starts_with("NAME") && table.contains("WINDOW"), "{table}");
    let missing = cluster.kubectl("get pods.metrics.k8s.io absent");
    assert_eq!(missing.stderr.trim(), "Error from server (NotFound): pods \"absent\" not found");

    cluster.running("app=busy", 2);
    eventually("the autoscaler reports the utilization", || {
        let autoscaler = cluster.get("hpa busy").remove(0);
        let utilization = &autoscaler["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"];
        if utilization.as_u64() > Some(50) { Ok(()) } else { Err(autoscaler.to_string()) }
    });
}
