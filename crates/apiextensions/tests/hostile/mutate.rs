//! Inputs: handwritten CRD versions and objects, the recorded schemas and values with Kubernetes' results, and recorded
//! expressions as rules, mutated by a seeded random generator.
#![allow(dead_code, reason = "who has coverage mutates on its own")]

use api::Value;
use fastrand::Rng;
use serde_json::json;

/// Tokens of CRD versions and objects.
pub const TOKENS: [&str; 60] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\n",
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e308",
    "9223372036854775807",
    "{}",
    "[]",
    "\"a\"",
    "\"a\":",
    "\"type\":\"object\",",
    "\"type\":\"array\",",
    "\"type\":\"string\",",
    "\"type\":\"integer\",",
    "\"type\":\"number\",",
    "\"type\":\"boolean\",",
    "\"properties\":{",
    "\"additionalProperties\":{",
    "\"additionalProperties\":true,",
    "\"items\":{",
    "\"default\":",
    "\"nullable\":true,",
    "\"enum\":[",
    "\"required\":[\"a\"],",
    "\"pattern\":\"^(a|b)*$\",",
    "\"format\":\"date-time\",",
    "\"format\":\"byte\",",
    "\"format\":\"duration\",",
    "\"maximum\":10,",
    "\"multipleOf\":0.1,",
    "\"maxLength\":10,",
    "\"maxItems\":10,",
    "\"maxProperties\":10,",
    "\"uniqueItems\":true,",
    "\"allOf\":[{",
    "\"anyOf\":[{",
    "\"oneOf\":[{",
    "\"not\":{",
    "\"x-kubernetes-int-or-string\":true,",
    "\"x-kubernetes-preserve-unknown-fields\":true,",
    "\"x-kubernetes-embedded-resource\":true,",
    "\"x-kubernetes-list-type\":\"map\",",
    "\"x-kubernetes-list-type\":\"set\",",
    "\"x-kubernetes-list-map-keys\":[\"a\"],",
    "\"x-kubernetes-map-type\":\"atomic\",",
    "\"x-kubernetes-validations\":[{\"rule\":\"",
    "self == oldSelf",
    "\"messageExpression\":\"",
    "\"optionalOldSelf\":true,",
    "\"fieldPath\":\".a\",",
];

/// Returns the seed inputs.
pub fn seed_corpus() -> Vec<String> {
    let recorded = include_str!("../../../api/tests/custom_values.jsonl").lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let schema = json!({"type": "object", "properties": {"a": line["schema"]}});
        Some(input_lines(&version_with_schema(schema), &json!({"a": line["value"]}), &json!({})))
    });
    let expressions = include_str!("../../../cel/tests/recorded/expressions.txt");
    let rules = expressions.lines().filter(|line| line.contains("self")).map(rule_input);
    handwritten_inputs().into_iter().chain(recorded).chain(rules).collect()
}

fn input_lines(version: &Value, object: &Value, old: &Value) -> String {
    format!("{version}\n{object}\n{old}")
}

fn version_with_schema(schema: Value) -> Value {
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

/// Returns the input of a recorded expression as a rule of the schema that it was recorded with.
fn rule_input(rule: &str) -> String {
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("test data is JSON");
    let mut schema = read(include_str!("../../../cel/tests/recorded/schema.json"));
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "messageExpression": "string(self.kind)"}]);
    let object = read(include_str!("../../../cel/tests/recorded/self.json"));
    input_lines(&version_with_schema(schema), &object, &object)
}

/// Returns inputs that use all features of a version.
fn handwritten_inputs() -> Vec<String> {
    let text = json!({"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"});
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": text, "size": {"type": "integer",
        "default": 1, "maximum": 9, "exclusiveMaximum": true, "format": "int32"}},
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "fieldPath": ".size", "reason": "FieldValueInvalid"}]});
    let keyed = json!({"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": item});
    let wide = json!({"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": {
            "boats": keyed, "replicas": {"type": "integer", "default": 3},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "when": {"type": "string", "format": "date-time", "nullable": true},
            "data": {"type": "string", "format": "byte"},
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"}},
            "x-kubernetes-validations": [{"rule": "!has(self.boats) || self.boats.all(b, b.size <= self.replicas)",
                "messageExpression": "'at most ' + string(self.replicas)"},
                {"rule": "oldSelf.hasValue() || self.kind == 'a'", "optionalOldSelf": true}]},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let mut version = version_with_schema(wide);
    version["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    version["selectableFields"] = json!([{"jsonPath": ".spec.kind"}, {"jsonPath": ".spec.replicas"}]);
    let column = |name: &str, ty: &str, path: &str| json!({"name": name, "type": ty, "jsonPath": path});
    version["additionalPrinterColumns"] = json!([
        column("Size", "integer", ".spec.boats[0].size"),
        column("Names", "string", ".spec.boats[?(@.size>1)].name"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("All", "string", "..name")
    ]);
    let object = json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"boats": [{"name": "ab", "size": 2}, {"name": "c"}],
        "tags": ["x", "y"], "labels": {"k": "v"}, "port": "http", "any": {"x": [1, {"y": null}]}, "when": null, "data": "YWJj",
        "inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}, "unknown": 1},
        "status": {"replicas": 1, "selector": "a=b"}});
    let old =
        json!({"metadata": {"name": "a"}, "spec": {"boats": [{"name": "c", "size": 5}], "port": 80, "kind": "b"}});
    vec![input_lines(&version, &object, &old), input_lines(&version, &old, &object)]
}

/// Mutates an input of the corpus a few times.
pub fn mutate_lines(rng: &mut Rng, corpus: &[String]) -> Vec<u8> {
    let mut bytes = corpus[rng.usize(..corpus.len())].clone().into_bytes();
    for _ in 0..rng.usize(..5) {
        let at = rng.usize(..=bytes.len());
        let to = (at + rng.usize(..40)).min(bytes.len());
        match rng.u8(..6) {
            0 => drop(bytes.drain(at..to)),
            1 => drop(bytes.splice(at..at, TOKENS[rng.usize(..TOKENS.len())].bytes())),
            2 => drop(bytes.splice(at..to, TOKENS[rng.usize(..TOKENS.len())].bytes())),
            3 => drop(bytes.splice(at..to, [rng.u8(b' '..b'~')])),
            4 => replace_value(rng, &mut bytes, at),
            _ => {
                let part = bytes[at..to].repeat(rng.usize(1..4));
                drop(bytes.splice(at..at, part));
            }
        }
    }
    bytes
}

/// Replaces one value by another, so that the result is often valid JSON.
fn replace_value(rng: &mut Rng, bytes: &mut Vec<u8>, from: usize) {
    const VALUES: [&str; 12] =
        ["null", "true", "0", "-1", "9223372036854775807", "1e308", "\"\"", "\"a\"", "{}", "[]", "[[]]", "{\"a\":{}}"];
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'\n');
    let Some(start) = bytes[from..].iter().position(|byte| *byte == b':').map(|at| from + at + 1) else { return };
    let Some(length) = bytes[start..].iter().position(is_end) else { return };
    drop(bytes.splice(start..start + length, VALUES[rng.usize(..VALUES.len())].bytes()));
}
