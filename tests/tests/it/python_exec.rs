//! The Python client in a running container, over WebSockets as it does.

use ferry_tests::{TestCluster, python, run_command, skip_reason};

#[test]
fn the_python_client_runs_commands_in_a_container() {
    if skip_reason().is_some() {
        return;
    }
    let Some(python) = python::ensure_client() else { return };
    let cluster = TestCluster::up();
    cluster.kubectl("run shell --image=nginx --labels=app=shell").expect_success();
    cluster.running("app=shell", 1);
    let (script, kubeconfig) = (python::script_path("exec.py"), cluster.host.file("kubeconfig"));
    let args = [script.to_str().expect("text"), kubeconfig.to_str().expect("text"), "shell"];
    let told = run_command(&mut cluster.host.prepared(&python, &args), None).expect_success();
    assert_eq!(told, "ok output\nok shell\n");
}
