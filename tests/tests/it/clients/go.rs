//! client-go: the program in `tests/go-client` checks what it gets; here it is built and run.

use std::{path::Path, process::Command};

use ferry_tests::{TestApiServer, machine, run_command};

use super::has;

/// The checks that the program reports, in order.
const CHECKS: &[&str] = &[
    "crud",
    "errors",
    "patches",
    "apply",
    "scale",
    "retry",
    "paging",
    "watch",
    "informer",
    "dynamic",
    "metadata",
    "election",
    "events",
    "discovery",
];

#[test]
fn client_go_with_protobuf_and_streaming_lists() {
    if !has("go", "version") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go-client");
    let program = machine::cache_dir("go-client").join("go-client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(&source);
    let modules = run_command(Command::new("go").args(["mod", "download"]).current_dir(&source), None);
    if modules.code != 0 {
        return skip::skip_test(format_args!("the modules of client-go cannot be fetched: {}", modules.stderr));
    }
    run_command(&mut build, None).expect_success();
    let server = TestApiServer::start();
    let kubeconfig = server.kubeconfig();
    let mut command = server.prepared(&program, &[kubeconfig.to_str().expect("text")]);
    let told = run_command(command.env("KUBE_FEATURE_WatchListClient", "true"), None);
    let done: Vec<&str> = told.stdout.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    assert_eq!(done, CHECKS, "{}{}", told.stdout, told.stderr);
    assert_eq!(told.code, 0);
}
