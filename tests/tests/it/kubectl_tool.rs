//! `ferry kubectl` beside upstream's kubectl: the same output, errors and exit codes, on an API server and on real pods.

mod copies;
mod maintenance;
mod pods;
mod rollouts;
mod streaming;
mod terminals;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use ferry_tests::{
    CommandOutput, TestApiServer, TestCluster, eventually, machine::built_program, run_command, upstream,
};

/// Command lines that change nothing.
const LINES: [&str; 32] = [
    "get namespaces -o name",
    "get namespace default -o jsonpath={.metadata.labels}",
    "get configmap settings -o yaml --show-managed-fields=false",
    "get configmap settings -o go-template={{range.data}}{{.}},{{end}}",
    "get configmaps -A --sort-by=.metadata.name -o custom-columns=NAME:.metadata.name,KEYS:.data",
    "get configmap absent",
    "get nonsense",
    "get pods",
    "get configmap settings --output=nonsense",
    "describe configmap settings",
    "create deployment web --image=nginx --replicas=3 --dry-run=client -o yaml",
    "create configmap two --from-literal=a=1 --dry-run=server -o json",
    "create job once --image=busybox --dry-run=client -o yaml -- echo hello",
    "run one --image=nginx --port=80 --dry-run=client -o yaml",
    "label configmap settings tier=front --dry-run=server",
    "annotate configmap settings note=text --dry-run=server -o yaml",
    "patch configmap settings -p {\"data\":{\"color\":\"green\"}} --dry-run=server",
    "api-versions",
    "auth can-i list pods",
    "delete configmap absent",
    "get --no-such-flag",
    "rollout status deployment/absent",
    "explain pods.spec.containers --recursive",
    "explain deployments --output=plaintext-openapiv2",
    "cluster-info",
    "kustomize absent",
    "completion nonsense",
    "__complete get configmaps se",
    "logs absent",
    "exec absent -- true",
    "top pods",
    "auth whoami",
];

#[test]
fn both_kubectls_say_the_same() {
    let Some(program) = upstream::build_program("kubectl") else { return };
    let server = TestApiServer::start();
    server.kubectl("create configmap settings --from-literal=color=red --from-literal=size=7").expect_success();
    for line in LINES {
        let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let mut ours: Command = server.prepared(built_program("ferry"), &["kubectl"]);
        let ours = run_command(ours.args(&args), None);
        let theirs = run_command(&mut server.prepared(&program, &args), None);
        assert_eq!(comparable(&ours), comparable(&theirs), "kubectl {line}");
    }
}

/// Command lines for a server that does not answer.
const LINES_WITHOUT_SERVER: [&str; 24] = [
    "get pods",
    "get pod/one",
    "get pods,services",
    "get pods.v1.apps one",
    "get all",
    "get --raw /x",
    "describe pod one",
    "delete pod one",
    "create configmap one",
    "create role one --verb=get --resource=pods",
    "run one --image=nginx --dry-run=client",
    "logs -l app=one",
    "exec one -- true",
    "port-forward one 80",
    "cordon one",
    "taint node one a=b:NoSchedule",
    "top pods",
    "explain pods",
    "api-versions",
    "api-resources",
    "version",
    "auth can-i get pods",
    "rollout status deployment/one",
    "wait --for=delete pod/one",
];

/// Each look-up of upstream's mapper asks the server and logs that it does not answer.
#[test]
fn both_kubectls_say_the_same_without_a_server() {
    let Some(upstream) = upstream::build_program("kubectl") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let run = |program: &std::path::Path, before: &[&str], line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        words.insert(at, "--server=http://127.0.0.1:1");
        let mut command = Command::new(program);
        command.args(before).args(words).env("HOME", directory.path()).env("KUBECONFIG", "/dev/null");
        let mut told = run_command(&mut command, None);
        // The head of a log line has the time and the process.
        let lines = told.stderr.lines();
        told.stderr =
            lines.map(|line| line.split_once("] \"").map_or(line, |(_, text)| text)).collect::<Vec<_>>().join("\n");
        comparable(&told)
    };
    for line in LINES_WITHOUT_SERVER {
        let ours = run(&built_program("ferry"), &["kubectl"], line);
        assert_eq!(ours, run(&upstream, &[], line), "kubectl {line}");
    }
}

/// A link named `kubectl` to the binary is kubectl.
#[test]
fn link_named_kubectl_is_kubectl() {
    let server = TestApiServer::start();
    let link = server.file("kubectl");
    std::os::unix::fs::symlink(built_program("ferry"), &link).expect("a link");
    let version = run_command(&mut server.prepared(&link, &["version", "--client"]), None).expect_success();
    assert!(version.starts_with("Client Version: v1.36"), "{version}");
}

/// Both programs and the cluster that they talk to.
struct KubectlPair<'a> {
    cluster: &'a TestCluster,
    upstream: PathBuf,
}

impl KubectlPair<'_> {
    fn ours(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.prepared(built_program("ferry"), &["kubectl"]);
        command
            .args(args)
            .env("KUBECACHEDIR", self.cluster.host.file("cache-ours"))
            .current_dir(self.cluster.host.dir());
        command
    }

    fn theirs(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.prepared(&self.upstream, args);
        command.env("KUBECACHEDIR", self.cluster.host.file("cache-theirs")).current_dir(self.cluster.host.dir());
        command
    }

    /// Both programs with their names.
    fn commands(&self, args: &[&str]) -> [(&'static str, Command); 2] {
        [("ours", self.ours(args)), ("theirs", self.theirs(args))]
    }

    /// Runs a line with both programs and describes the difference.
    fn difference(&self, line: &str, input: Option<&str>) -> Option<String> {
        let words = words_of(line);
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let [ours, theirs] = self.commands(&args).map(|(_, mut command)| run_command(&mut command, input));
        describe_difference(line, &ours, &theirs)
    }

    /// Runs lines with both programs while `change` happens, and describes the differences. All lines run at once; the
    /// change comes when each has written its first text.
    fn differences_while(&self, lines: &[FollowedLine], change: impl FnOnce()) -> Vec<String> {
        let start = |(number, line): (usize, &FollowedLine)| {
            let words = words_of(line.line);
            let args: Vec<&str> = words.iter().map(String::as_str).collect();
            self.commands(&args).map(|(name, command)| self.start_followed(command, &format!("{name}-{number}")))
        };
        let mut started: Vec<[FollowedCommand; 2]> = lines.iter().enumerate().map(start).collect();
        for (commands, line) in started.iter().zip(lines) {
            commands.iter().for_each(|command| command.wait_for_text(line, line.first));
        }
        change();
        let ended = started.iter_mut().zip(lines).map(|(commands, line)| {
            let [ours, theirs] = commands.each_mut().map(|command| command.finish(line));
            describe_difference(line.line, &ours, &theirs)
        });
        ended.flatten().collect()
    }

    fn start_followed(&self, mut command: Command, name: &str) -> FollowedCommand {
        let files = ["out", "err"].map(|kind| self.cluster.host.file(&format!("{name}.{kind}")));
        let [out, err] = files.each_ref().map(|path| fs::File::create(path).expect("a file"));
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("kubectl starts");
        FollowedCommand { child, files }
    }
}

/// A line whose output comes bit by bit.
struct FollowedLine {
    line: &'static str,
    /// The text on stdout before the change.
    first: &'static str,
    /// The text on stdout after which the program is ended; empty if it ends by itself.
    last: &'static str,
}

/// A running program with its output in files.
struct FollowedCommand {
    child: Child,
    files: [PathBuf; 2],
}

impl FollowedCommand {
    fn texts(&self) -> [String; 2] {
        self.files.each_ref().map(|path| fs::read_to_string(path).expect("text"))
    }

    fn wait_for_text(&self, line: &FollowedLine, text: &str) {
        eventually(&format!("{text:?} of kubectl {}", line.line), || match self.texts() {
            [out, _] if out.contains(text) => Ok(()),
            texts => Err(texts.join("\n")),
        });
    }

    /// Waits for the end, or ends it after its last text.
    fn finish(&mut self, line: &FollowedLine) -> CommandOutput {
        let code = if line.last.is_empty() {
            eventually(&format!("the end of kubectl {}", line.line), || match self.child.try_wait().expect("a child") {
                Some(status) => Ok(status.code().unwrap_or(-1)),
                None => Err(self.texts().join("\n")),
            })
        } else {
            self.wait_for_text(line, line.last);
            self.child.kill().expect("it runs until it is ended");
            self.child.wait().expect("it ends");
            0
        };
        let [stdout, stderr] = self.texts();
        CommandOutput { line: line.line.to_owned(), code, stdout, stderr }
    }
}

/// The words of a line; a no-break space is a space within a word.
fn words_of(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('\u{a0}', " ")).collect()
}

fn describe_difference(line: &str, ours: &CommandOutput, theirs: &CommandOutput) -> Option<String> {
    let (mut ours, mut theirs) = (comparable(ours), comparable(theirs));
    if ["logs", "events", "top"].iter().any(|command| line.starts_with(command)) {
        // Lines of several containers, and rows with equal keys, come in any order.
        for output in [&mut ours.1, &mut theirs.1] {
            let mut lines: Vec<&str> = output.lines().collect();
            lines.sort_unstable();
            *output = lines.join("\n");
        }
    }
    (ours != theirs).then(|| format!("kubectl {line}\n  ours: {ours:?}\n  upstream's: {theirs:?}"))
}

/// Returns the parts that must be equal: exit code, and output without what changes between two runs.
fn comparable(output: &CommandOutput) -> (i32, String, String) {
    let normalized = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("resourceVersion") && !line.contains("uid"));
        let lines = lines.map(|line| line.split_whitespace().map(without_age).collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    };
    (output.code, normalized(&output.stdout), normalized(&output.stderr))
}

/// Replaces ages, which differ by a second, measured amounts, and IDs of executions.
fn without_age(word: &str) -> &str {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c));
    let is_id = word.trim_matches(['"', ':']).len() == 64
        && word.trim_matches(['"', ':']).chars().all(|c| c.is_ascii_hexdigit());
    let is_amount = word.strip_suffix("Mi").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()));
    if is_age || is_id || is_amount { "<age, amount or ID>" } else { word }
}
