//! Gives all containers of the pods of one namespace a certificate, from a secret.

use clap::Parser;
use ferry_example_initializers::{Initializer, RejectedObject};
use serde_json::{Value, json};

const VOLUME: &str = "certificate";

/// Mounts a certificate into the pods of one namespace.
#[derive(Parser)]
struct Arguments {
    /// The namespace
    #[arg(long)]
    namespace: String,
    /// The secret that holds the certificate
    #[arg(long)]
    secret: String,
    /// Mount path in containers
    #[arg(long, default_value = "/etc/certificate")]
    path: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let initializer = Initializer { name: "certificate.example.com", path: "/api/v1/pods" };
    initializer.run(|pod| mount(pod, &arguments)).await
}

fn mount(pod: &mut Value, arguments: &Arguments) -> Result<(), RejectedObject> {
    if pod["metadata"]["namespace"] != arguments.namespace.as_str() {
        return Ok(());
    }
    push(&mut pod["spec"]["volumes"], json!({"name": VOLUME, "secret": {"secretName": arguments.secret}}));
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mount = json!({"name": VOLUME, "mountPath": arguments.path, "readOnly": true});
            push(&mut container["volumeMounts"], mount);
        }
    }
    Ok(())
}

/// Adds to a list that may not be there yet.
fn push(list: &mut Value, value: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(value),
        None => *list = json!([value]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(namespace: &str) -> (usize, usize) {
        let arguments = Arguments { namespace: "safe".into(), secret: "s".into(), path: "/c".into() };
        let mut pod = json!({"metadata": {"namespace": namespace},
            "spec": {"volumes": [{"name": "v"}], "containers": [{"name": "c"}]}});
        mount(&mut pod, &arguments).unwrap();
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        (count(&pod["spec"]["volumes"]), count(&pod["spec"]["containers"][0]["volumeMounts"]))
    }

    #[test]
    fn one_namespace_gets_the_certificate() {
        assert_eq!(mounts("safe"), (2, 1));
        assert_eq!(mounts("other"), (1, 0));
    }
}
