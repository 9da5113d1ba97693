//! Inputs for hostile tests: upstream's fixtures and random objects, mutated with a seeded generator.

use std::{fs, path::Path};

use fastrand::Rng;
use ferry_api::{
    protobuf,
    schema::{TypeId, schema},
    yaml,
};

use crate::generate;

/// The length limit of most inputs.
const LENGTH: usize = 32 << 10;

const TOKENS: [&[u8]; 40] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"1.0",
    b"\xff",
    b"\0",
    b"9223372036854775808",
    b"&a ",
    b"*a",
    b"<<: ",
    b"- ",
    b"\n",
    b"\n  ",
    b"? ",
    b"!!binary ",
    b"!!int ",
    b"|\n",
    b">-\n",
    b"---\n",
    b"k8s\0",
    b"\x80",
    b"\x0a\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\"$patch\":\"delete\",",
    b"\"$patch\":\"replace\",",
    b"\"$retainKeys\":[\"a\"],",
    b"\"$setElementOrder/containers\":[{\"name\":\"a\"}],",
    b"\"$deleteFromPrimitiveList/finalizers\":[\"a\"],",
    b"{\"op\":\"move\",\"from\":\"/metadata\",\"path\":\"/spec\"},",
];

/// Documents of one format.
pub struct Corpus {
    documents: Vec<Vec<u8>>,
}

impl Corpus {
    /// The documents of a target.
    pub fn of(target: &str) -> Self {
        let extension = match target {
            "yaml" => "yaml",
            "protobuf" => "pb",
            _ => "json",
        };
        let mut documents = if target == "selectors" { Vec::new() } else { fixtures(extension) };
        let mut rng = Rng::with_seed(1);
        for resource in schema().resources() {
            let object = generate::random_object(&mut rng, resource.ty);
            documents.push(match target {
                "yaml" => yaml::write_document(&object).into_bytes(),
                "protobuf" => protobuf::encode_as(resource.ty, &object),
                "json_patch" => patch_operations(&object),
                "selectors" => random_selector(&mut rng),
                _ => object.to_string().into_bytes(),
            });
        }
        if target == "protobuf" {
            let bare: Vec<Vec<u8>> =
                documents.iter().filter_map(|bytes| Some(protobuf::open_object(bytes).ok()?.raw.to_vec())).collect();
            documents.extend(bare);
        }
        documents.retain(|bytes| bytes.len() < LENGTH);
        documents.sort();
        Self { documents }
    }

    /// A mutated document and a type to decode it as.
    pub fn next(&self, rng: &mut Rng, types: &[TypeId]) -> (Vec<u8>, TypeId) {
        let mut bytes = self.pick(rng).to_vec();
        for _ in 0..rng.usize(..6) {
            self.mutate(rng, &mut bytes);
        }
        bytes.truncate(LENGTH);
        (bytes, types[rng.usize(..types.len())])
    }

    fn pick(&self, rng: &mut Rng) -> &[u8] {
        &self.documents[rng.usize(..self.documents.len())]
    }

    fn mutate(&self, rng: &mut Rng, bytes: &mut Vec<u8>) {
        let at = rng.usize(..=bytes.len());
        let to = (at + rng.usize(..64)).min(bytes.len());
        match rng.u8(..8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let token = TOKENS[rng.usize(..TOKENS.len())];
                drop(bytes.splice(at..at, token.repeat(1 << rng.u32(..8))));
            }
            3 => {
                let chunk = bytes[at..to].repeat(rng.usize(1..50));
                drop(bytes.splice(at..at, chunk));
            }
            4 => {
                let other = self.pick(rng);
                let from = rng.usize(..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            5 => drop(bytes.splice(at..to, [rng.u8(..)])),
            _ => {
                for _ in 0..rng.usize(1..8) {
                    if !bytes.is_empty() {
                        let at = rng.usize(..bytes.len());
                        bytes[at] ^= 1 << rng.u8(..8);
                    }
                }
            }
        }
    }
}

/// A JSON patch that moves parts of an object.
fn patch_operations(object: &ferry_api::Value) -> Vec<u8> {
    let parts = object.as_object().into_iter().flatten();
    let operations: Vec<_> = parts
        .flat_map(|(name, value)| {
            let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            [
                serde_json::json!({"op": "add", "path": path, "value": value}),
                serde_json::json!({"op": "copy", "from": path, "path": "/copy"}),
                serde_json::json!({"op": "move", "from": path, "path": format!("/copy{path}")}),
            ]
        })
        .collect();
    serde_json::Value::from(operations).to_string().into_bytes()
}

/// A random label or field selector.
fn random_selector(rng: &mut Rng) -> Vec<u8> {
    const TERMS: [&str; 12] = [
        "a=b",
        "a==b",
        "a!=b",
        "tier in (web,db)",
        "x notin (1)",
        "!x",
        "x",
        "a>1",
        "a<2",
        "metadata.name=a",
        "status.phase!=Running",
        "spec.nodeName=",
    ];
    let terms: Vec<&str> = (0..rng.usize(1..5)).filter_map(|_| rng.choice(TERMS)).collect();
    terms.join(",").into_bytes()
}

fn fixtures(extension: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/api");
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter_map(|path| fs::read(path).ok())
        .collect()
}

/// Short inputs with large expansion, three megabytes each.
pub fn worst_documents() -> Vec<(&'static str, Vec<u8>)> {
    const SIZE: usize = 3 << 20;
    let filled = |prefix: &str, unit: &str, suffix: &str| {
        let count = (SIZE - prefix.len() - suffix.len()) / unit.len();
        format!("{prefix}{}{suffix}", unit.repeat(count)).into_bytes()
    };
    let unique = |count: usize| {
        let entries: String = (0..count).map(|at| format!("\"{at}\":0,")).collect();
        format!("{{{entries}\"\":0}}").into_bytes()
    };
    let unique_texts = |count: usize| String::from_utf8_lossy(&unique(count)).replace(":0", ":\"0\"").into_bytes();
    vec![
        ("json", filled("[", "0,", "0]")),
        ("json", filled("[", "[],", "0]")),
        ("json", filled("[", "{\"\":0},", "0]")),
        ("json", filled("{\"spec\":{\"containers\":[", "{},", "{}]}}")),
        ("json", filled("{", "\"a\":0,", "\"a\":0}")),
        ("json", unique(250_000)),
        ("json", filled("", "[", "")),
        ("json", filled("", "{\"a\":", "")),
        ("json", filled("\"", "\\ud800", "\"")),
        ("yaml", unique(50_000)),
        ("yaml", filled("[", "a,", "a]")),
        ("yaml", filled("[", "{a: 1},", "a]")),
        ("yaml", filled("", "- ", "")),
        ("yaml", filled("", "- a\n", "")),
        ("yaml", filled("", "a: \n", "")),
        ("yaml", filled("a: &a [b]\nb: [", "*a,", "*a]")),
        ("yaml", filled("a: &a ", "b", "\nb: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]")),
        ("yaml", filled("", "&a ", "")),
        ("yaml", filled("", "#\n", "")),
        ("yaml", filled("", "? ", "")),
        ("yaml", filled("\"", "\\n", "\"")),
        ("yaml", filled("a: |\n", " \n", "")),
        ("protobuf", [0x12, 2, 0x12, 0].repeat(SIZE / 4)),
        ("protobuf", [0x0a, 0].repeat(SIZE / 2)),
        ("protobuf", [0x0b].repeat(SIZE)),
        ("protobuf", pod_with(&[0x12, 0].repeat(SIZE / 2 - 16))),
        ("apply", filled("{\"metadata\":{\"labels\":{\"a\":[", "{\"\":0},", "0]}}}")),
        ("strategic_patch", filled("{\"metadata\":{\"finalizers\":[", "\"a\",", "\"a\"]}}")),
        ("strategic_patch", unique_finalizers(150_000)),
        ("merge_patch", filled("{\"a\":[", "{\"\":0},", "0]}")),
        ("body", unique(250_000)),
        ("body", [b"{\"metadata\":{\"labels\":", &unique(250_000)[..], b"}}"].concat()),
        ("body", [b"{\"metadata\":{\"annotations\":", &unique_texts(220_000)[..], b"}}"].concat()),
        ("json_patch", filled("[", "{\"op\":\"add\",\"path\":\"/a\",\"value\":[0,0,0,0,0,0,0,0]},", "{}]")),
    ]
}

/// A patch that adds list items and sets their order.
fn unique_finalizers(count: usize) -> Vec<u8> {
    let list: String = (0..count).map(|at| format!("\"{at}\",")).collect::<String>() + "\"a\"";
    let text = format!("{{\"metadata\":{{\"$setElementOrder/finalizers\":[{list}],\"finalizers\":[{list}]}}}}");
    text.into_bytes()
}

/// A pod with the given spec bytes.
fn pod_with(spec: &[u8]) -> Vec<u8> {
    let mut out = vec![0x12];
    let mut length = spec.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(spec);
    out
}
