//! Gives pods that expose port 80, or whose annotation asks for it, one more container.

use clap::Parser;
use ferry_example_initializers::{Initializer, RejectedObject};
use serde_json::{Value, json};

const ANNOTATION: &str = "initializers.example.com/sidecar";

/// Gives pods that expose port 80, or whose annotation asks for it, a sidecar.
#[derive(Parser)]
struct Arguments {
    /// The image of the sidecar
    #[arg(long)]
    image: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let initializer = Initializer { name: "sidecar.example.com", path: "/api/v1/pods" };
    initializer.run(|pod| add(pod, &arguments.image)).await
}

fn add(pod: &mut Value, image: &str) -> Result<(), RejectedObject> {
    if !wants(pod) {
        return Ok(());
    }
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.push(json!({"name": "sidecar", "image": image, "command": ["sleep", "infinity"]}));
    }
    Ok(())
}

fn wants(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    pod["metadata"]["annotations"][ANNOTATION] == "true" || ports.any(|port| port["containerPort"] == 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: Value, want: usize) {
        let mut pod = pod;
        add(&mut pod, "i").unwrap();
        assert_eq!(pod["spec"]["containers"].as_array().map(Vec::len), Some(want), "{pod}");
    }

    #[test]
    fn what_serves_or_asks_gets_a_sidecar() {
        let pod = |port: u16| json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": port}]}]}});
        check(pod(80), 2);
        check(pod(8080), 1);
        let mut asks = pod(8080);
        asks["metadata"]["annotations"] = json!({ANNOTATION: "true"});
        check(asks, 2);
    }
}
