//! The real kubectl explains custom resources and prints them; skipped, said aloud, where there is none.

use std::process::Command;

use serde_json::json;

use crate::{
    custom::world::{boats, version},
    wire::Wire,
};

/// Runs kubectl as the administrator and returns its output; `None` if there is no kubectl.
async fn kubectl(wire: &Wire, arguments: &[&str]) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    std::fs::write(&config, wire.kubeconfig()).unwrap();
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(&config).arg("--cache-dir").arg(dir.path()).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    Some(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_explains_and_prints() {
    let wire = Wire::start().await;
    let mut definition = boats(json!({}));
    definition["spec"]["names"]["shortNames"] = json!(["bo"]);
    definition["spec"]["versions"] = json!([version(
        "v1",
        true,
        json!({"type": "object", "description": "What a boat is.",
        "properties": {"size": {"type": "integer", "description": "How many berths it has."}}})
    )]);
    definition["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Berths", "type": "integer", "jsonPath": ".spec.size"}]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("boat.json");
    let boat =
        json!({"apiVersion": "harbour.example.io/v1", "kind": "Boat", "metadata": {"name": "b"}, "spec": {"size": 3}});
    std::fs::write(&path, definition.to_string()).unwrap();
    let file = path.to_str().unwrap();
    let Some(_) = kubectl(&wire, &["create", "-f", file]).await else {
        skip::skip_test("there is no kubectl");
        return;
    };
    for form in ["--output=plaintext", "--output=plaintext-openapiv2"] {
        let text = kubectl(&wire, &["explain", "boats.spec.size", form]).await.unwrap();
        assert!(text.contains("How many berths it has.") && text.contains("Boat"), "{text}");
    }
    std::fs::write(&path, boat.to_string()).unwrap();
    kubectl(&wire, &["apply", "--server-side", "-f", file]).await;
    kubectl(&wire, &["apply", "--server-side=false", "-f", file]).await;
    let text = kubectl(&wire, &["get", "bo"]).await.unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["NAME", "BERTHS", "b", "3"]);
    assert!(kubectl(&wire, &["api-resources"]).await.unwrap().contains("harbour.example.io/v1"));
}
