//! Bodies that are nearly objects: JSON, YAML and protobuf, cut, bent, nested and blown up.

use bytes::Bytes;
use serde_json::json;

/// The media types that bodies say they are.
const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json; charset=utf-8",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
    "application/cbor",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/",
    "/",
    ";;;",
    "*/*",
    "",
];

/// A media type and a body, which need not be of it.
pub fn malformed(random: &mut fastrand::Rng) -> (String, Bytes) {
    let body: Bytes = match random.u8(..20) {
        0..4 => mutated(random, json_object),
        4..6 => truncated(random, json_object),
        6..8 => odd_json(random).into(),
        8 => nested(random).into(),
        9 => yaml(random).into(),
        10..13 => mutated(random, protobuf),
        13 => truncated(random, protobuf),
        14..17 => patch(random).into(),
        17 => (0..random.usize(..500)).map(|_| random.u8(..)).collect::<Vec<_>>().into(),
        18 if random.u8(..12) == 0 => oversized(random),
        _ => Bytes::new(),
    };
    let guess = if body.starts_with(b"k8s\0") { 2 } else { [0, 0, 0, 1, 4, 5, 6, 7][random.usize(..8)] };
    let kind = if random.u8(..4) == 0 { random.usize(..TYPES.len()) } else { guess };
    (TYPES[kind].to_owned(), body)
}

fn object(random: &mut fastrand::Rng) -> serde_json::Value {
    let pod = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "env": [{"name": "A", "value": "b"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5}}],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}], "terminationGracePeriodSeconds": 3});
    let metadata = json!({"name": "m", "namespace": "default", "labels": {"a": "b"}, "annotations": {"c": "d"},
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.io/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]});
    match random.u8(..4) {
        0 => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}, "binaryData": {"b": "AAE="}})
        }
        1 => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}),
        2 => json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}}),
        _ => {
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1, "preconditions": {"uid": "u"},
            "propagationPolicy": "Orphan", "dryRun": ["All"]})
        }
    }
}

fn json_object(random: &mut fastrand::Rng) -> Vec<u8> {
    object(random).to_string().into()
}

fn protobuf(random: &mut fastrand::Rng) -> Vec<u8> {
    api::protobuf::encode_declared(&object(random)).unwrap_or_else(|| b"k8s\0\x0a\x00\x12\x00".to_vec())
}

type Make = fn(&mut fastrand::Rng) -> Vec<u8>;

fn truncated(random: &mut fastrand::Rng, make: Make) -> Bytes {
    let mut bytes = make(random);
    bytes.truncate(random.usize(..=bytes.len()));
    bytes.into()
}

/// Bytes replaced, put in, taken out and repeated.
fn mutated(random: &mut fastrand::Rng, make: Make) -> Bytes {
    let mut bytes = make(random);
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len());
        match random.u8(..5) {
            0 => bytes.insert(at, random.u8(..)),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if at < bytes.len() => bytes[at] = *b"{}[]\",:0-9.en\\\x00\xff".get(random.usize(..16)).unwrap_or(&0),
            3 => {
                let until = (at + random.usize(..40)).min(bytes.len());
                let piece = bytes[at..until].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, piece);
            }
            _ if at < bytes.len() => bytes[at] = random.u8(..),
            _ => {}
        }
    }
    bytes.into()
}

fn odd_json(random: &mut fastrand::Rng) -> Vec<u8> {
    let long = "9".repeat(random.usize(1..100_000));
    let odd = [
        "null".to_owned(),
        "[]".into(),
        "\"text\"".into(),
        "1".into(),
        "{}".into(),
        "{\"metadata\":null}".into(),
        "{\"metadata\":[]}".into(),
        "{\"metadata\":{\"name\":1}}".into(),
        "{\"metadata\":{\"labels\":{\"a\":null}}}".into(),
        "{\"kind\":\"Nothing\",\"apiVersion\":\"v1\"}".into(),
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"a/b/c\"}".into(),
        "{\"kind\":[],\"apiVersion\":{}}".into(),
        "{\"metadata\":{\"name\":\"x\",\"name\":\"y\"}}".into(),
        format!("{{\"immutable\":{long}}}"),
        format!("{{\"data\":{{\"a\":{long}e{long}}}}}"),
        "{\"metadata\":{\"name\":\"\\ud800\"}}".into(),
        "{\"metadata\":{\"name\":\"\\u0000\"}}".into(),
        "{\"metadata\":{\"deletionGracePeriodSeconds\":1e400}}".into(),
        "{\"metadata\":{\"creationTimestamp\":\"yesterday\"}}".into(),
        "{\"metadata\":{\"managedFields\":[{\"fieldsV1\":{\"f:x\":7}}]}}".into(),
        "{\"metadata\":{\"resourceVersion\":\"-1\"}}".into(),
        "{\"binaryData\":{\"a\":\"!!!\"}}".into(),
        "\u{feff}{}".into(),
        "{\"a\":NaN}".into(),
        "{} {}".into(),
        format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "x".repeat(random.usize(1..200_000))),
    ];
    let mut body = odd[random.usize(..odd.len())].clone().into_bytes();
    if random.u8(..10) == 0 {
        body.extend_from_slice(b"\xff\xfe");
    }
    body
}

/// Deeper than any object is.
fn nested(random: &mut fastrand::Rng) -> Vec<u8> {
    let depth = [100, 1000, 10_000, 200_000, 1_000_000][random.usize(..5)];
    let (open, close) =
        [("[", "]"), ("{\"a\":", "}"), ("{\"properties\":{\"a\":", "}}"), ("- ", "")][random.usize(..4)];
    let depth = depth.min((2 << 20) / open.len());
    let close = if random.bool() { close.repeat(depth) } else { String::new() };
    format!("{}1{close}", open.repeat(depth)).into()
}

fn yaml(random: &mut fastrand::Rng) -> Vec<u8> {
    let levels = random.usize(2..12);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..levels {
        let again = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{again}]\n");
    }
    let odd = [
        bomb,
        "a: &a *a\n".into(),
        "*nobody".into(),
        "? [a, b]\n: c\n".into(),
        "!!binary x\n".into(),
        "!!python/object/apply:os.system [x]\n".into(),
        "a: b\n c: d\n\te: f\n".into(),
        "--- a\n--- b\n".into(),
        "{a: b".into(),
        "<<: {a: b}\n<<: [c]\n".into(),
        "metadata: {name: 1.0, labels: {on: off}}\n".into(),
        "%YAML 9.9\n---\na: b\n".into(),
        format!("a: {}\n", "|\n x".repeat(random.usize(1..1000))),
        format!("{}a", "[".repeat(random.usize(1..100_000))),
        format!("{}a: b", " ".repeat(random.usize(1..100_000))),
        "a: \u{0}\n".into(),
    ];
    odd[random.usize(..odd.len())].clone().into()
}

fn patch(random: &mut fastrand::Rng) -> Vec<u8> {
    let patches = [
        r#"[{"op":"add"}]"#.to_owned(),
        r#"[{"op":"explode","path":"/"}]"#.into(),
        r#"[{"op":"replace","path":"data/a","value":1}]"#.into(),
        r#"[{"op":"remove","path":"/metadata/name"}]"#.into(),
        r#"[{"op":"remove","path":""}]"#.into(),
        r#"[{"op":"add","path":"/data/-1/~2","value":{}}]"#.into(),
        r#"[{"op":"move","from":"/data","path":"/data/a"}]"#.into(),
        r#"[{"op":"copy","from":"/metadata","path":"/metadata/labels"}]"#.into(),
        r#"[{"op":"test","path":"/data/k","value":"other"}]"#.into(),
        r#"[{"op":"add","path":"/metadata/finalizers/99999999999999999999","value":"x"}]"#.into(),
        r#"{"op":"add"}"#.into(),
        r#"[1,null,"x"]"#.into(),
        r#"{"metadata":{"uid":"other"}}"#.into(),
        r#"{"metadata":null}"#.into(),
        r#"{"data":{"$patch":"explode"}}"#.into(),
        r#"{"$patch":"replace"}"#.into(),
        r#"{"$patch":7}"#.into(),
        r#"{"$retainKeys":["a"],"data":{"b":"c"}}"#.into(),
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":{},"$setElementOrder/ownerReferences":[1]}}"#.into(),
        r#"{"metadata":{"ownerReferences":[{"$patch":"delete"}]}}"#.into(),
        r#"{"metadata":{"ownerReferences":[7]}}"#.into(),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","managedFields":[{}]}}"#.into(),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"},"data":{"a":["b"]}}"#.into(),
        r#"{"apiVersion":"v9","kind":"ConfigMap"}"#.into(),
        // Each copy doubles what is there.
        format!(
            r#"[{{"op":"add","path":"/data","value":{{"a":"{}"}}}}{}]"#,
            "x".repeat(1000),
            r#",{"op":"copy","from":"/data","path":"/data/b"}"#.repeat(random.usize(1..40))
        ),
        format!("[{}]", vec![r#"{"op":"add","path":"/data/a","value":"b"}"#; random.usize(1..20_000)].join(",")),
    ];
    patches[random.usize(..patches.len())].clone().into()
}

fn oversized(random: &mut fastrand::Rng) -> Bytes {
    let size = (3 << 20) + random.usize(..200_000);
    format!(r#"{{"metadata":{{"name":"big"}},"data":{{"a":"{}"}}}}"#, "x".repeat(size)).into()
}
