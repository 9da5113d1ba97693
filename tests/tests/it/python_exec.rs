//! The Python client in a running container, over WebSockets as it does.

use ferry_tests::{Cluster, python, run, skip_reason};

#[test]
fn the_python_client_runs_commands_in_a_container() {
    if skip_reason().is_some() {
        return;
    }
    let Some(python) = python::with_client() else { return };
    let cluster = Cluster::up();
    cluster.kubectl("run shell --image=nginx --labels=app=shell").ok();
    cluster.running("app=shell", 1);
    let (script, kubeconfig) = (python::script("exec.py"), cluster.host.file("kubeconfig"));
    let args = [script.to_str().expect("text"), kubeconfig.to_str().expect("text"), "shell"];
    let told = run(&mut cluster.host.prepared(&python, &args), None).ok();
    assert_eq!(told, "ok output\nok shell\n");
}
