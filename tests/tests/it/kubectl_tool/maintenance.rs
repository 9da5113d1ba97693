//! `drain`, also where a PodDisruptionBudget forbids it at first.

use std::process::Stdio;

use ferry_tests::{eventually, run_command};

use super::{KubectlPair, comparable};

const BUDGET: &str = r#"
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"#;

impl KubectlPair<'_> {
    pub(super) fn compare_drains(&self) {
        let node = self.cluster.get("nodes")[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        // Lines that cordon find it done.
        self.cluster.kubectl(&format!("cordon {node}")).expect_success();
        for line in [
            format!("drain {node} --ignore-daemonsets --dry-run=server"),
            format!("drain {node}"),
            format!("drain {node} --pod-selector=app=nonsense"),
            format!("uncordon {node} --dry-run=server"),
            format!("cordon {node} --dry-run=client"),
        ] {
            assert_eq!(self.difference(&line, None), None);
        }
        self.cluster.kubectl(&format!("uncordon {node}")).expect_success();
        let told = [true, false].map(|ours| self.drain_against_budget(&node, ours));
        assert_eq!(told[0], told[1]);
        let args = ["drain", &node, "--ignore-daemonsets", "--force", "--grace-period=0", "--pod-selector=app=talker"];
        let told = run_command(&mut self.ours(&args), None).expect_success();
        assert!(told.contains("pod/talker evicted") && told.ends_with(&format!("node/{node} drained\n")), "{told}");
        eventually("the pod is gone", || match self.cluster.kubectl("get pod talker").code {
            0 => Err("it is there".to_owned()),
            _ => Ok(()),
        });
        run_command(&mut self.ours(&["uncordon", &node]), None).expect_success();
    }

    /// Drains while a budget allows no eviction, deletes the budget, and returns what the program wrote until its end.
    fn drain_against_budget(&self, node: &str, ours: bool) -> (i32, String, String) {
        let name = self.cluster.running("app=web", 1)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        self.cluster.kubectl_args(&["apply", "-f", "-"], Some(BUDGET)).expect_success();
        eventually("the budget counts the pod", || match &self.cluster.get("pdb web")[0]["status"] {
            status if status["currentHealthy"] == 1 => Ok(()),
            status => Err(status.to_string()),
        });
        let args = ["drain", node, "--ignore-daemonsets", "--pod-selector=app=web", "--timeout=60s"];
        let mut command = if ours { self.ours(&args) } else { self.theirs(&args) };
        let path = self.cluster.host.file("drain.err");
        let log = std::fs::File::create(&path).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("kubectl starts");
        let text = || std::fs::read_to_string(&path).expect("text");
        eventually("a refused eviction", || match text() {
            text if text.contains("will retry after 5s") => Ok(()),
            text => Err(text),
        });
        self.cluster.kubectl("delete pdb web").expect_success();
        let output = child.wait_with_output().expect("it ends");
        self.cluster.kubectl(&format!("uncordon {node}")).expect_success();
        let told = ferry_tests::CommandOutput {
            line: "drain".to_owned(),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).replace(&name, "POD"),
            stderr: text().replace(&name, "POD"),
        };
        let (code, stdout, stderr) = comparable(&told);
        // The number of attempts depends on when the budget is gone.
        let mut lines: Vec<&str> = stderr.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        (code, stdout, lines.join("\n"))
    }
}
