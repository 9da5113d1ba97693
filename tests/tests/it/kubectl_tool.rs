//! `ferry kubectl` beside upstream's kubectl on one API server: the same output, errors and exit codes.

use std::process::Command;

use ferry_tests::{CommandOutput, TestApiServer, machine::built_program, run_command};

/// Command lines that change nothing.
const LINES: [&str; 22] = [
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
];

#[test]
fn both_kubectls_say_the_same() {
    let server = TestApiServer::start();
    let version = server.kubectl("version --client").stdout;
    if !version.contains("v1.36.") {
        return skip::skip_test(format_args!("the machine's kubectl is not of 1.36: {version}"));
    }
    server.kubectl("create configmap settings --from-literal=color=red --from-literal=size=7").expect_success();
    for line in LINES {
        let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let ours = run_ours(&server, &args);
        let theirs = server.kubectl_args(&args, None);
        assert_eq!(comparable(&ours), comparable(&theirs), "kubectl {line}");
    }
}

/// A link named `kubectl` to the binary is kubectl, and what it does not do is refused by name.
#[test]
fn missing_commands_are_refused_by_name() {
    let server = TestApiServer::start();
    let refused = run_ours(&server, &["logs", "pod"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (1, "error: logs is not supported by this kubectl\n"));
    let link = server.file("kubectl");
    std::os::unix::fs::symlink(built_program("ferry"), &link).expect("a link");
    let version = run_command(&mut server.prepared(&link, &["version", "--client"]), None).expect_success();
    assert!(version.starts_with("Client Version: v1.36"), "{version}");
}

fn run_ours(server: &TestApiServer, args: &[&str]) -> CommandOutput {
    let mut command: Command = server.prepared(built_program("ferry"), &["kubectl"]);
    command.args(args);
    run_command(&mut command, None)
}

/// Returns the parts that must be equal: exit code, output without resource versions, which change between two writes, and errors.
fn comparable(output: &CommandOutput) -> (i32, String, String) {
    let lines = output.stdout.lines().filter(|line| !line.contains("resourceVersion") && !line.contains("uid"));
    (output.code, lines.collect::<Vec<_>>().join("\n"), output.stderr.clone())
}
