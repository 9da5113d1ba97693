//! Benchmarks decoding, transcoding and applying a Pod of 10 KB.

use divan::{
    Bencher,
    counter::{BytesCount, ItemsCount},
};
use ferry_api::{
    Value, apply,
    decode::{self, FieldValidation},
    defaults,
    discovery::ALL_ENABLED,
    document_cache::{DocumentCache, DocumentName},
    json, openapi, protobuf,
    schema::{Resource, schema},
    validate, yaml,
};
use serde_json::json;

fn main() {
    divan::main();
}

fn pods() -> &'static Resource {
    schema().resource("", "v1", "pods").expect("there are pods")
}

/// A typical pod with several containers.
fn pod() -> Value {
    let container = |at: usize| {
        json!({"name": format!("container-{at}"), "image": format!("registry.example.com/team/service-{at}:v1.2.{at}"),
            "command": ["/bin/service", "--config=/etc/service/config.yaml", "--verbose"],
            "env": (0..6).map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value of setting {n}")})).collect::<Vec<_>>(),
            "ports": [{"name": "http", "containerPort": 8080 + at, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/service", "readOnly": true}, {"name": "data", "mountPath": "/data"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "initialDelaySeconds": 5, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080 + at}, "failureThreshold": 3},
            "securityContext": {"runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "example", "namespace": "default", "labels": {"app.kubernetes.io/name": "example", "tier": "backend"},
            "annotations": {"example.com/description": "a pod as people write them, with several containers"}},
        "spec": {"containers": (0..9).map(container).collect::<Vec<_>>(), "serviceAccountName": "example",
            "volumes": [{"name": "config", "configMap": {"name": "example"}}, {"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "example", "effect": "NoSchedule"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "example"}}, "topologyKey": "kubernetes.io/hostname"}]}}}})
}

fn pod_json() -> Vec<u8> {
    let text = pod().to_string().into_bytes();
    assert!((9_000..11_000).contains(&text.len()), "the pod has {} bytes", text.len());
    text
}

fn canonical_pod() -> Value {
    decode::decode_json(pods().ty, &pod_json(), FieldValidation::Strict).expect("a pod").0
}

#[divan::bench]
fn strict_decode_default_validate(bencher: Bencher) {
    let text = pod_json();
    bencher.counter(BytesCount::of_slice(&text)).bench_local(|| {
        let (mut object, _) = decode::decode_json(pods().ty, &text, FieldValidation::Strict).expect("a pod");
        defaults::apply_defaults(pods().ty, &mut object);
        let errors = validate::validate_create(pods(), &object);
        assert!(errors.is_empty(), "{errors:?}");
        object
    });
}

#[divan::bench]
fn strict_decode(bencher: Bencher) {
    let text = pod_json();
    bencher
        .counter(BytesCount::of_slice(&text))
        .bench_local(|| decode::decode_json(pods().ty, &text, FieldValidation::Strict).expect("a pod"));
}

#[divan::bench]
fn json_parse(bencher: Bencher) {
    let text = pod_json();
    bencher.counter(BytesCount::of_slice(&text)).bench_local(|| json::parse(&text).expect("JSON"));
}

#[divan::bench]
fn json_write(bencher: Bencher) {
    let object = canonical_pod();
    bencher.counter(BytesCount::of_slice(&pod_json())).bench_local(|| object.to_string());
}

#[divan::bench]
fn protobuf_encode(bencher: Bencher) {
    let object = canonical_pod();
    let bytes = protobuf::encode_object(pods(), &object);
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| protobuf::encode_object(pods(), &object));
}

#[divan::bench]
fn protobuf_decode(bencher: Bencher) {
    let bytes = protobuf::encode_object(pods(), &canonical_pod());
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| protobuf::decode_object(&bytes).expect("a pod"));
}

#[divan::bench]
fn json_to_protobuf(bencher: Bencher) {
    let text = pod_json();
    bencher.counter(BytesCount::of_slice(&text)).bench_local(|| {
        let (object, _) = decode::decode_json(pods().ty, &text, FieldValidation::Strict).expect("a pod");
        protobuf::encode_object(pods(), &object)
    });
}

#[divan::bench]
fn protobuf_to_json(bencher: Bencher) {
    let bytes = protobuf::encode_object(pods(), &canonical_pod());
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| protobuf::decode_object(&bytes).expect("a pod").to_string());
}

/// A second manager applies labels, an image and a variable to a pod of another manager.
#[divan::bench]
fn apply_merge(bencher: Bencher) {
    let (config, _) = json::parse(&pod_json()).expect("JSON");
    let writer = |manager| apply::ApplyRequest {
        target: apply::ApplyTarget::for_resource(pods(), ""),
        manager,
        now: "2026-01-01T00:00:00Z",
    };
    let live = apply::apply_config(&writer("first"), None, &config, false).expect("a new pod");
    let second = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "example", "labels": {"team": "a"}},
        "spec": {"containers": [{"name": "container-3", "image": "registry.example.com/team/service-3:v2",
            "env": [{"name": "EXTRA", "value": "1"}]}]}});
    bencher
        .counter(ItemsCount::new(1usize))
        .bench_local(|| apply::apply_config(&writer("second"), Some(&live), &second, true).expect("a merge"));
}

#[divan::bench]
fn yaml_decode(bencher: Bencher) {
    let text = yaml::write_document(&canonical_pod());
    bencher
        .counter(BytesCount::of_str(&text))
        .bench_local(|| yaml::decode_yaml(pods().ty, text.as_bytes(), FieldValidation::Strict).expect("a pod"));
}

#[divan::bench(sample_count = 10)]
fn openapi_2(bencher: Bencher) {
    bencher.bench_local(|| openapi::v2_document(ALL_ENABLED).to_string());
}

#[divan::bench(sample_count = 10)]
fn openapi_2_protobuf(bencher: Bencher) {
    bencher.bench_local(|| openapi::v2_protobuf(ALL_ENABLED));
}

#[divan::bench]
fn openapi_2_again(bencher: Bencher) {
    let pages = DocumentCache::new(|_, _| true);
    let page = pages.get(&DocumentName::OpenApi2).expect("a document");
    bencher.counter(BytesCount::of_slice(&page.bytes)).bench_local(|| pages.get(&DocumentName::OpenApi2));
}
