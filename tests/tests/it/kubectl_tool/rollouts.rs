//! Rollouts: their status while they are in progress, and commands that change workloads.

use ferry_tests::{eventually, run_command};

use super::{FollowedLine, KubectlPair, describe_difference, words_of};

/// A container that is ready once a file is there.
const CONTAINER: &str = "{name: c, image: nginx, imagePullPolicy: Never, \
    readinessProbe: {exec: {command: [test, -f, /tmp/ready]}, periodSeconds: 1}}";

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: gated}
spec:
  replicas: 2
  selector: {matchLabels: {gate: deployment}}
  template:
    metadata: {labels: {gate: deployment}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [CONTAINER]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: gated}
spec:
  selector: {matchLabels: {gate: set}}
  serviceName: none
  template:
    metadata: {labels: {gate: set}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [CONTAINER]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: gated}
spec:
  selector: {matchLabels: {gate: daemons}}
  template:
    metadata: {labels: {gate: daemons}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [CONTAINER]
"#;

const fn line(line: &'static str, first: &'static str) -> FollowedLine {
    FollowedLine { line, first, last: "" }
}

const STATUSES: [FollowedLine; 5] = [
    line("rollout status deployment/gated", "0 of 2 updated replicas are available"),
    line("rollout status statefulset/gated --timeout=60s", "Waiting for 1 pods to be ready"),
    line("rollout status daemonset/gated", "0 of 1 updated pods are available"),
    line("wait --for=condition=Available deployment/gated --timeout=60s", ""),
    line("wait --for=jsonpath={.status.readyReplicas}=2 deployment/gated --timeout=60s", ""),
];

/// Changes that each program makes in a namespace of its own.
const CHANGES: [&str; 40] = [
    "create deployment web --image=nginx:2 --replicas=2",
    "set image deployment/web nginx=nginx:3 --dry-run=server",
    "set image deployment/web nginx=nginx:3",
    "set image deployment/web none=nginx:3",
    "set image deployment/web *=nginx:2",
    "set image deployment/absent *=nginx:2",
    "set env deployment/web A=1 B-",
    "set env deployment/web --list",
    "set resources deployment/web --limits=cpu=200m",
    "annotate deployment/web kubernetes.io/change-cause=tests",
    "rollout history deployment/web",
    "rollout history deployment/web --revision=2",
    "rollout history deployment/web --revision=99",
    "rollout status deployment/web --timeout=1s --revision=99",
    "rollout pause deployment/web",
    "rollout pause deployment/web",
    "rollout restart deployment/web",
    "rollout undo deployment/web",
    "rollout resume deployment/web",
    "rollout resume deployment/web",
    "rollout restart deployment/web",
    "rollout restart deployment -l app=web",
    "rollout restart deployment absent",
    "rollout undo deployment/web --to-revision=1 --dry-run=client",
    "rollout undo deployment/web --to-revision=1 --dry-run=server",
    "rollout undo deployment/web --to-revision=1",
    "rollout undo deployment/web --to-revision=99",
    "scale deployment/web --replicas=3 --current-replicas=7",
    "scale deployment/web --replicas=3 --current-replicas=2",
    "scale deployment/web --replicas=0 --timeout=30s",
    "scale deployment --all --replicas=1",
    "scale deployment/absent --replicas=1",
    "autoscale deployment/web --max=3 --cpu=80%",
    "autoscale deployment/web --max=3",
    "autoscale deployment/web --min=4 --max=3",
    "get hpa web -o jsonpath={.spec}",
    "expose deployment/web --port=80 --name=front",
    "expose deployment/absent --port=80",
    "get deployment web -o jsonpath={.spec.template.spec}",
    "delete deployment,hpa,service web front --ignore-not-found",
];

impl KubectlPair<'_> {
    pub(super) fn compare_rollouts(&self) -> Vec<String> {
        self.cluster
            .kubectl_args(&["apply", "-f", "-"], Some(&MANIFEST.replace("CONTAINER", CONTAINER)))
            .expect_success();
        let names = eventually("pods that run and are not ready", || {
            let pods = self.cluster.get("pods -l gate");
            let names: Vec<String> =
                pods.iter().filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect();
            if names.len() == 4 && pods.iter().all(|pod| pod["status"]["phase"] == "Running") {
                return Ok(names);
            }
            Err(self.cluster.kubectl("get pods -l gate").stdout)
        });
        let mut differences = self.differences_while(&STATUSES, || {
            for name in &names {
                self.cluster.kubectl(&format!("exec {name} -- touch /tmp/ready")).expect_success();
                self.cluster.kubectl(&format!("wait --for=condition=Ready pod/{name} --timeout=60s")).expect_success();
            }
        });
        self.cluster.kubectl("delete deployment,statefulset,daemonset gated").expect_success();
        let namespaces = ["side-a", "side-b"];
        namespaces.iter().for_each(|name| drop(self.cluster.kubectl(&format!("create ns {name}")).expect_success()));
        for line in CHANGES {
            let words = words_of(line);
            let told = [0, 1].map(|side| {
                let args: Vec<&str> = words.iter().map(String::as_str).chain(["-n", namespaces[side]]).collect();
                let mut command = if side == 0 { self.ours(&args) } else { self.theirs(&args) };
                let mut told = run_command(&mut command, None);
                for text in [&mut told.stdout, &mut told.stderr] {
                    *text = text.replace(namespaces[side], "side");
                }
                told
            });
            differences.extend(describe_difference(line, &told[0], &told[1]));
        }
        differences
    }
}
