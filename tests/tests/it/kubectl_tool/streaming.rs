//! Output that comes while the cluster changes: followed logs, watches, waiting.

use ferry_tests::eventually;

use super::{FollowedLine, KubectlPair};

const MANIFEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: follow-a, labels: {app: follow}}
spec: &spec
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: one, image: nginx, imagePullPolicy: Never, command: [sh, -c, "echo begin; until test -f /tmp/go; do sleep 0.1; done; echo end"]}
  - {name: two, image: nginx, imagePullPolicy: Never, command: [sh, -c, "echo second; exec sleep 0.1"]}
---
apiVersion: v1
kind: Pod
metadata: {name: follow-b, labels: {app: follow}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: one, image: nginx, imagePullPolicy: Never, command: [sh, -c, "echo begin; until test -f /tmp/go; do sleep 0.1; done; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: held, labels: {app: held}, finalizers: [example.com/held]}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: one, image: nginx, imagePullPolicy: Never, command: [sleep, "9999"]}]
"#;

const EVENT: &str = r#"
apiVersion: v1
kind: Event
metadata: {name: tested}
involvedObject: {apiVersion: v1, kind: Pod, name: held, namespace: default}
reason: Tested
message: it was tested
type: Normal
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
"#;

const fn line(line: &'static str, first: &'static str) -> FollowedLine {
    FollowedLine { line, first, last: "" }
}

/// Lines that end with the containers.
const LOGS: [FollowedLine; 6] = [
    line("logs -f follow-a -c one", "begin"),
    line("logs -f follow-a --all-containers --timestamps", "begin"),
    line("logs -f -l app=follow --all-containers --prefix", "second"),
    line("logs -f follow-b --since=1h --tail=1", "begin"),
    line("logs -f -l app=follow -c one --max-log-requests=1", ""),
    line("wait --for=jsonpath={.status.phase}=Failed pod/follow-b --timeout=60s", ""),
];

/// Lines that are ended when the object has changed.
const WATCHES: [FollowedLine; 4] = [
    FollowedLine { line: "get pods -w -l app=held -L tier", first: "held", last: "front" },
    FollowedLine { line: "get pod held -w -o name", first: "pod/held", last: "pod/held\npod/held" },
    FollowedLine { line: "events --watch --for pod/held", first: "LAST SEEN", last: "Tested" },
    FollowedLine { line: "get pod held -w -o jsonpath={.metadata.labels}{'\\n'}", first: "held", last: "front" },
];

/// Lines that end with the object, which is being deleted already.
const DELETIONS: [FollowedLine; 4] = [
    line("wait --for=delete pod/held --timeout=60s", ""),
    line("wait --for=delete pod -l app=held --timeout=60s", ""),
    line("delete pod held --timeout=60s", "deleted"),
    line("delete pods -l app=held --now", "deleted"),
];

impl KubectlPair<'_> {
    pub(super) fn compare_streams(&self) -> Vec<String> {
        self.cluster.kubectl_args(&["apply", "-f", "-"], Some(MANIFEST)).expect_success();
        eventually("pods that run", || match self.cluster.get("pods follow-a follow-b held") {
            pods if pods.iter().all(|pod| pod["status"]["phase"] == "Running") => Ok(()),
            pods => Err(format!("{pods:?}")),
        });
        let mut differences = self.differences_while(&LOGS, || {
            for pod in ["follow-a", "follow-b"] {
                self.cluster.kubectl(&format!("exec {pod} -c one -- touch /tmp/go")).expect_success();
            }
        });
        differences.extend(self.differences_while(&WATCHES, || {
            self.cluster.kubectl("label pod held tier=front").expect_success();
            self.cluster.kubectl_args(&["create", "-f", "-"], Some(EVENT)).expect_success();
        }));
        self.cluster.kubectl("delete pod held --wait=false").expect_success();
        differences.extend(self.differences_while(&DELETIONS, || {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            self.cluster.kubectl_args(&["patch", "pod", "held", "-p", patch], None).expect_success();
        }));
        differences
    }
}
