//! Definitions that others wrote, from their Go modules; skipped, said aloud, where Go or the modules are not at hand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::world::{APPLY, DEFINITIONS, World};

/// Modules, and where in them definitions are.
const MODULES: &[(&str, &[&str])] = &[
    ("github.com/cert-manager/cert-manager@v1.21.2", &["deploy/crds"]),
    ("github.com/prometheus-operator/prometheus-operator@v0.85.0", &["example/prometheus-operator-crd"]),
    ("github.com/argoproj/argo-cd/v3@v3.5.6", &["manifests/crds"]),
    ("github.com/kedacore/keda/v2@v2.21.0", &["config/crd/bases"]),
    (
        "sigs.k8s.io/cluster-api@v1.14.2",
        &[
            "core/config/crd/bases",
            "bootstrap/kubeadm/config/crd/bases",
            "controlplane/kubeadm/config/crd/bases",
            "cmd/clusterctl/config/crd/bases",
        ],
    ),
    ("istio.io/api@v1.31.1", &["kubernetes"]),
    ("sigs.k8s.io/gateway-api@v1.6.3", &["config/crd/standard", "config/crd/experimental"]),
];

/// Where a module is, if it can be had.
fn module(name: &str) -> Option<PathBuf> {
    let output = Command::new("go").args(["mod", "download", "-json", name]).current_dir("/").output().ok()?;
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    told["Dir"].as_str().map(PathBuf::from)
}

/// The definitions in the files of a folder.
fn definitions(folder: &Path) -> Vec<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    let documents = texts.flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        format!("\n{text}").split("\n---").map(str::to_owned).collect::<Vec<_>>()
    });
    documents.filter(|document| document.contains("\nkind: CustomResourceDefinition")).collect()
}

#[tokio::test]
async fn definitions_of_others_are_accepted_established_and_documented() {
    let world = World::new().await;
    let mut names = Vec::new();
    for (name, folders) in MODULES {
        let Some(dir) = module(name) else {
            eprintln!("skipped: {name} is not at hand");
            return;
        };
        for document in folders.iter().flat_map(|folder| definitions(&dir.join(folder))) {
            let (code, answer) = world.send("POST", DEFINITIONS, "application/yaml", &document.into()).await;
            // Gateways have the same definitions in two channels.
            assert!(code == 201 || code == 409, "{name}: {code} {}", answer["message"]);
            if code == 201 {
                names.push(answer["metadata"]["name"].as_str().unwrap().to_owned());
            }
        }
    }
    println!("{} definitions", names.len());
    assert!(names.len() >= 60, "{names:?}");
    for name in &names {
        established(&world, name).await;
    }
    samples(&world).await;
}

/// A definition is established, and its kinds are in the documents that `kubectl explain` reads.
async fn established(world: &World, name: &str) {
    let (_, definition) = world.get(&format!("{DEFINITIONS}/{name}")).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let is_true = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
    assert!(is_true("Established") && is_true("NamesAccepted"), "{name}: {conditions:?}");
    let (group, kind) = (&definition["spec"]["group"], &definition["spec"]["names"]["kind"]);
    for version in definition["spec"]["versions"].as_array().unwrap().iter().filter(|version| version["served"] == true)
    {
        let (group, version) = (group.as_str().unwrap(), version["name"].as_str().unwrap());
        let (code, document) = world.get(&format!("/openapi/v3/apis/{group}/{version}")).await;
        assert_eq!(code, 200, "{group}/{version}");
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let wanted = json!([{"group": group, "version": version, "kind": kind}]);
        assert!(schemas.values().any(|schema| schema["x-kubernetes-group-version-kind"] == wanted), "{name} {version}");
    }
}

/// Objects of theirs go through create and apply.
async fn samples(world: &World) {
    let check = async |path: &str, object: Value| {
        let (code, answer) = world.post(path, &object).await;
        assert_eq!(code, 201, "{path}: {answer}");
        let name = object["metadata"]["name"].as_str().unwrap();
        let applied = format!("{path}/{name}?fieldManager=test&force=true");
        let (code, answer) = world.send("PATCH", &applied, APPLY, &object).await;
        assert_eq!(code, 200, "{applied}: {answer}");
        let (code, list) = world.get(path).await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)), "{path}");
    };
    check(
        "/apis/cert-manager.io/v1/namespaces/default/issuers",
        json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "own"}, "spec": {"selfSigned": {}}}),
    )
    .await;
    check(
        "/apis/monitoring.coreos.com/v1/namespaces/default/servicemonitors",
        json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "endpoints": [{"port": "metrics", "interval": "30s"}]}}),
    )
    .await;
    check(
        "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects",
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "web"},
            "spec": {"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "cron", "metadata": {"a": "b"}}]}}),
    )
    .await;
    check(
        "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes",
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "web"},
            "spec": {"parentRefs": [{"name": "g"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
    )
    .await;
}
