//! The Python client: the script in `tests/python-client` checks what it gets; here it is run. Its exec is in
//! `tests/python_exec.rs`, with containers.

use ferry_tests::{TestApiServer, python, run_command};

#[test]
fn the_python_client_reads_writes_and_watches() {
    let Some(python) = python::ensure_client() else { return };
    let server = TestApiServer::start();
    let (script, kubeconfig) = (python::script_path("objects.py"), server.kubeconfig());
    let args = [script.to_str().expect("text"), kubeconfig.to_str().expect("text")];
    let told = run_command(&mut server.prepared(&python, &args), None).expect_success();
    let done: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    assert_eq!(done, ["objects", "deployments", "watched", "applied", "version"], "{told}");
}
