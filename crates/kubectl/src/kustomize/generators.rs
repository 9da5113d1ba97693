//! Generators of ConfigMaps and Secrets, and the hash in their names.

use api::{Map, Value};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    kustomization::Kustomization,
    resources::{BuildResource, append_resource},
};
use crate::{
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
};

/// Runs the generators of a kustomization.
pub fn run_generators(kustomization: &Kustomization, resources: &mut Vec<BuildResource>) -> CommandResult {
    for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
        for arguments in kustomization.list(field) {
            let generated = generate(kustomization, arguments, kind)?;
            absorb(resources, generated, arguments.text("behavior"))?;
        }
    }
    Ok(())
}

fn generate(kustomization: &Kustomization, arguments: &Value, kind: &str) -> CommandResult<BuildResource> {
    let name = arguments.text("name");
    if name.is_empty() {
        crate::bail!("error generating {kind}: name must be specified");
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    if !arguments.text("namespace").is_empty() {
        object["metadata"]["namespace"] = arguments.text("namespace").into();
    }
    let pairs = load_pairs(kustomization, arguments)
        .map_err(|error| CommandError::new(format!("loading KV pairs: {error}")))?;
    for (key, content) in pairs {
        let (field, value) = match (kind, String::from_utf8(content)) {
            ("Secret", content) => {
                let bytes = content.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes);
                ("data", encode_lines(&bytes))
            }
            (_, Ok(text)) => ("data", text),
            (_, Err(error)) => ("binaryData", encode_lines(error.as_bytes())),
        };
        if object[field].get(&key).is_some() {
            crate::bail!("cannot add key {key}, another key by that name already exists in {kind} {name}");
        }
        object[field][key] = value.into();
    }
    if kind == "Secret" {
        let ty = arguments.text("type");
        object["type"] = if ty.is_empty() { "Opaque" } else { ty }.into();
    }
    let (all, own) = (kustomization.map("generatorOptions"), arguments.map("options").cloned().unwrap_or_default());
    for field in ["labels", "annotations"] {
        let mut merged = all.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
        merged.extend(own.get(field).and_then(Value::as_object).cloned().unwrap_or_default());
        if !merged.is_empty() {
            object["metadata"][field] = Value::Object(merged);
        }
    }
    let flag = |name: &str| [&own, &all].iter().any(|options| options.get(name) == Some(&Value::Bool(true)));
    if flag("immutable") {
        object["immutable"] = true.into();
    }
    Ok(BuildResource { needs_hash: !flag("disableNameSuffixHash"), ..BuildResource::new(object) })
}

/// Base64 in lines of 70 characters if it is longer than one.
fn encode_lines(bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    if encoded.len() < 70 {
        return encoded;
    }
    let chunks = encoded.as_bytes().chunks(70);
    chunks.map(|chunk| format!("{}\n", String::from_utf8_lossy(chunk))).collect()
}

/// Keys and contents, in the order of files for variables, literals and files.
fn load_pairs(kustomization: &Kustomization, arguments: &Value) -> CommandResult<Vec<(String, Vec<u8>)>> {
    let texts = |field: &str| arguments.list(field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
    let wrong = |what: &str, field: &str, error: CommandError| {
        CommandError::new(format!("{what} [{}]: {error}", texts(field).join(" ")))
    };
    let mut pairs = Vec::new();
    for file in texts("envs") {
        let content = kustomization.read(file).map_err(|error| wrong("env source files:", "envs", error))?;
        for line in String::from_utf8_lossy(&content).trim_start_matches('\u{feff}').lines() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once('=') {
                Some((key, value)) => pairs.push((key.to_owned(), value.as_bytes().to_vec())),
                // The environment of the command is not part of the build.
                None => pairs.push((line.to_owned(), Vec::new())),
            }
        }
    }
    for literal in texts("literals") {
        let Some((key, value)) = literal.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let error = CommandError::new(format!("invalid literal source {literal}, expected key=value"));
            return Err(wrong("literal sources", "literals", error));
        };
        let quoted = ['"', '\'']
            .iter()
            .find_map(|quote| (value.len() >= 2).then(|| value.strip_prefix(*quote)?.strip_suffix(*quote)).flatten());
        pairs.push((key.to_owned(), quoted.unwrap_or(value).as_bytes().to_vec()));
    }
    for source in texts("files") {
        let (key, path) = match source.split_once('=') {
            Some((key, path)) if !key.is_empty() && !path.is_empty() => (key, path),
            Some(_) => crate::bail!("invalid file source {source}, expected key=path"),
            None => (source.rsplit('/').next().unwrap_or(source), source),
        };
        let content = kustomization.read(path).map_err(|error| wrong("file sources:", "files", error))?;
        pairs.push((key.to_owned(), content));
    }
    Ok(pairs)
}

/// Adds a generated object, or merges it into one of an earlier generator.
fn absorb(resources: &mut Vec<BuildResource>, generated: BuildResource, behavior: &str) -> CommandResult {
    let found = resources.iter_mut().find(|resource| {
        let (kind, name, namespace) =
            (generated.object.text("kind"), name_of(&generated.object), namespace_of(&generated.object));
        resource.identities().any(|identity| identity == (kind, name, namespace))
    });
    match (behavior, found) {
        ("" | "create" | "unspecified", None) => append_resource(resources, generated),
        ("" | "create" | "unspecified", Some(_)) => crate::bail!(
            "merging from generator: id resid.ResId{{{}}} exists; behavior must be merge or replace",
            BuildResource::identity_text(&generated.object)
        ),
        (_, None) => crate::bail!(
            "merging from generator: id {} does not exist; cannot merge or replace",
            BuildResource::identity_text(&generated.object)
        ),
        ("merge", Some(existing)) => {
            for field in ["data", "binaryData", "stringData"] {
                merge_maps(&mut existing.object, &generated.object, field);
            }
            for field in ["labels", "annotations"] {
                let part = generated.object["metadata"].clone();
                merge_maps(&mut existing.object["metadata"], &part, field);
            }
            Ok(())
        }
        ("replace", Some(existing)) => {
            let mut object = generated.object;
            for field in ["name", "namespace"] {
                if let Some(value) = existing.object["metadata"].at(field) {
                    object["metadata"][field] = value.clone();
                }
            }
            existing.object = object;
            Ok(())
        }
        (other, _) => crate::bail!("unknown behavior {}", api::json::go_quote(other)),
    }
}

fn merge_maps(target: &mut Value, source: &Value, field: &str) {
    let Some(added) = source.get(field).and_then(Value::as_object) else { return };
    let mut merged: Map = target.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    merged.extend(added.clone());
    target[field] = Value::Object(merged);
}

/// The hash that names of generated objects end with. As in kustomize, the name itself is not part of it.
pub fn hash_of(object: &Value) -> String {
    let text = |value: Option<&Value>| value.cloned().unwrap_or_else(|| "".into());
    let kind = object.text("kind");
    let mut content = json!({"kind": kind, "name": "", "data": text(object.get("data"))});
    let optional = match kind {
        "Secret" => {
            content["type"] = text(object.get("type"));
            "stringData"
        }
        _ => "binaryData",
    };
    if let Some(value) = object.get(optional).filter(|value| value.is_object()) {
        content[optional] = value.clone();
    }
    if !["ConfigMap", "Secret"].contains(&kind) {
        content = object.clone();
    }
    let encoded = go_json(&content);
    let digest = Sha256::digest(encoded.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let letter = |c: char| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    hex.chars().take(10).map(letter).collect()
}

/// JSON as Go writes it: sorted, with characters of HTML escaped.
fn go_json(value: &Value) -> String {
    let text = match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            let entries: Vec<String> = keys
                .into_iter()
                .map(|key| format!("{}:{}", go_json(&key.as_str().into()), go_json(&map[key])))
                .collect();
            return format!("{{{}}}", entries.join(","));
        }
        Value::Array(items) => return format!("[{}]", items.iter().map(go_json).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    };
    let escapes =
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];
    escapes.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_that_of_upstream() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gen"}, "data": {"a": "1"}});
        let mut named = object.clone();
        named["metadata"]["name"] = "pre-gen".into();
        assert_eq!(hash_of(&named), "h29d89cmmt");
        assert_eq!(hash_of(&object), hash_of(&named));
    }
}
