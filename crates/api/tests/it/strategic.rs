//! Replays strategic merge patches recorded from kube-apiserver 1.36.4.

use crate::shared::{differences, exchanges};
use ferry_api::{
    Value, decode, defaults,
    patch::PatchType,
    schema::{Resource, schema},
};

/// A lower number means that the recording or this test lost some.
const MIN_PATCHES: usize = 40;

/// The resource of the object at a path; `None` for custom resources.
fn resource(path: &str) -> Option<&'static Resource> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, version, rest) = match parts[..] {
        ["api", version, ref rest @ ..] => ("", version, rest),
        ["apis", group, version, ref rest @ ..] => (group, version, rest),
        _ => return None,
    };
    let name = if rest.len() > 2 && rest[0] == "namespaces" { rest.get(2) } else { rest.first() };
    schema().resource(group, version, name?)
}

fn text<'a>(exchange: &'a Value, name: &str) -> &'a str {
    exchange[name].as_str().unwrap_or_default()
}

/// The object that an exchange stored at a path.
fn object_after(exchange: &Value, path: &str) -> Option<Value> {
    let (at, query) = text(exchange, "path").split_once('?').unwrap_or((text(exchange, "path"), ""));
    let ok = exchange["status"].as_u64().is_some_and(|status| status < 300) && !query.contains("dryRun");
    let response = &exchange["response"];
    let name = path.rsplit('/').next().unwrap_or_default();
    let made =
        text(exchange, "method") == "POST" && path == format!("{at}/{name}") && response["metadata"]["name"] == name;
    let is_object = response["metadata"]["uid"].is_string();
    (ok && is_object && (made || at == path && text(exchange, "method") != "DELETE")).then(|| response.clone())
}

/// Drops fields that the server sets.
fn without_server_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(name);
        }
    }
    object
}

#[test]
fn recorded_patches_have_upstreams_result() {
    let Some(exchanges) = exchanges() else { return };
    let (mut done, mut wrong) = (0, Vec::new());
    for (at, exchange) in exchanges.iter().enumerate() {
        let strategic = exchange["headers"]["Content-Type"] == "application/strategic-merge-patch+json";
        let path = text(exchange, "path").split('?').next().unwrap_or_default();
        let Some(resource) = resource(path).filter(|_| strategic && exchange["status"] == 200) else { continue };
        let Some(before) = exchanges[..at].iter().rev().find_map(|exchange| object_after(exchange, path)) else {
            wrong.push(format!("{}: nothing before", text(exchange, "id")));
            continue;
        };
        let patched = PatchType::Strategic.apply_patch(resource.ty, &before, &exchange["body"]).expect("a patch");
        let mut ours = decode::canonicalize(resource.ty, patched).expect("an object").object;
        defaults::apply_defaults(resource.ty, &mut ours);
        let theirs = without_server_fields(exchange["response"].clone());
        differences(text(exchange, "id"), &theirs, &without_server_fields(ours), &mut wrong);
        done += 1;
    }
    eprintln!("{done} strategic merge patches, {} differences", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(done >= MIN_PATCHES, "only {done} patches");
}
