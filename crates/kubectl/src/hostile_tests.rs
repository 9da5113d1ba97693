//! Broken input: mutated templates, paths, manifests and server answers end in an error, never in a panic.

use serde_json::{Value, json};

use crate::{
    go_template::GoTemplate,
    jsonpath::JsonPath,
    kubeconfig::LoadingRules,
    kustomize::{BuildOptions, build_directory},
    manifest::decode_documents,
    merge_conflicts::patches_conflict,
    merge_patch::{diff_unordered, three_way_strategic, type_of_object},
    printers::{TableOptions, TablePrinter},
    tab_writer::TabWriter,
};

/// Copies of a text with bytes replaced, removed and repeated, the same ones in every run.
fn mutations(seed: &str, count: u64) -> impl Iterator<Item = String> + '_ {
    let noise = b"{}[]()|.,:;$\"'`\\@?*-+=<>&%# \n\t0a\x1b\xff";
    (0..count).map(move |number| {
        let mut random = fastrand::Rng::with_seed(number);
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len().max(1));
            match random.u8(..4) {
                0 if at < bytes.len() => bytes[at] = noise[random.usize(..noise.len())],
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => bytes.truncate(at),
                _ => bytes.insert(at.min(bytes.len()), noise[random.usize(..noise.len())]),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn object() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}, "items": [{"n": 1}, {"n": null}, "s"], "f": 1.5})
}

#[test]
fn mutated_templates_do_not_panic() {
    let seeds = [
        "{{range $i, $x := .items}}{{if and $i (eq .n 1)}}{{printf \"%05.2f %q\" .n .m}}{{else}}-{{end}}{{end}}",
        "{{define \"t\"}}{{. | len}}{{end}}{{template \"t\" .metadata.name}}{{index .items 0 \"n\"}}{{slice .kind 1 2}}",
    ];
    for text in seeds.iter().flat_map(|seed| mutations(seed, 3000)) {
        if let Ok(template) = GoTemplate::parse(&text) {
            let _ = template.execute(&object());
        }
    }
}

#[test]
fn mutated_paths_do_not_panic() {
    let seeds =
        ["{range .items[?(@.n>=1)]}{.n}{\"\\n\"}{end}{.metadata['labels']}", "{..n}{.items[-1:]}{.items[0,1].n}{.f}"];
    for text in seeds.iter().flat_map(|seed| mutations(seed, 3000)) {
        if let Ok(path) = JsonPath::parse(&text) {
            let _ = path.format(&object());
        }
    }
}

#[test]
fn mutated_manifests_do_not_panic() {
    let seed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: |\n    text\n  b: [1, ~, *x]\n---\n{\"kind\": \"List\"}\n";
    for text in mutations(seed, 3000) {
        let _ = decode_documents(text.as_bytes(), "file");
    }
}

#[test]
fn mutated_kustomizations_do_not_panic() {
    let resources = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: c, image: 'i:1'}]}}}\n";
    let seed = "resources: [d.yaml]\nnamePrefix: p-\nimages: [{name: i, newTag: '2'}]\nlabels: [{pairs: {a: b}}]\nconfigMapGenerator: \
                [{name: m, literals: [a=b]}]\npatches: [{target: {kind: D.*}, patch: '[{\"op\":\"remove\",\"path\":\"/spec\"}]'}]\nreplacements: \
                [{source: {kind: ConfigMap, fieldPath: data.a}, targets: [{select: {kind: Deployment}, fieldPaths: \
                ['spec.template.spec.containers.[name=c].image']}]}]\n";
    let directory = tempfile::tempdir().unwrap();
    let [kustomization, file] = ["kustomization.yaml", "d.yaml"].map(|name| directory.path().join(name));
    for (name, mutated, other, rest) in
        [(&kustomization, seed, &file, resources), (&file, resources, &kustomization, seed)]
    {
        std::fs::write(other, rest).unwrap();
        for text in mutations(mutated, 150) {
            std::fs::write(name, text).unwrap();
            let _ = build_directory(&directory.path().to_string_lossy(), &BuildOptions::default());
        }
    }
}

#[test]
fn mutated_kubeconfigs_do_not_panic() {
    let seed = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: k, cluster: {server: 'https://h:1'}}]\nusers: [{name: u, \
                user: {token: t, exec: {command: x, args: [a], env: [{name: N, value: v}]}}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    for text in mutations(seed, 2000) {
        std::fs::write(file.path(), text).unwrap();
        let rules = LoadingRules::new(&file.path().to_string_lossy());
        let _ = rules.load(false);
    }
}

#[test]
fn mutated_patches_do_not_panic() {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1, "strategy": {"type": "Recreate"},
        "template": {"spec": {"containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 1}]}], "volumes": [{"name": "v"}]}}}});
    let ty = type_of_object(&object).unwrap();
    for text in mutations(&object.to_string(), 3000) {
        let Ok(other) = serde_json::from_str::<Value>(&text) else { continue };
        let patch = three_way_strategic(ty, &object, &other, &object);
        let _ = patches_conflict(ty, &patch, &diff_unordered(ty, &other, &object));
        let _ = crate::printers::typed_value(&other);
    }
}

#[test]
fn tables_of_wrong_types_do_not_panic() {
    let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": [{"name": "Name", "type": "string", "priority": 0}, {"name": "Age", "type": "date"}],
        "rows": [{"cells": ["a", 7], "object": {"metadata": {"name": "a"}}}, {"cells": ["b"]}]});
    for text in mutations(&table.to_string(), 4000) {
        let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
        let mut writer = TabWriter::for_tables();
        TablePrinter::new(TableOptions::default()).write(&mut writer, &value, "");
        let _ = writer.flush();
    }
}

#[test]
fn escape_sequences_of_the_server_do_not_reach_the_terminal() {
    let table = json!({"kind": "Table", "columnDefinitions": [{"name": "Name", "type": "string"}],
        "rows": [{"cells": ["\u{1b}]0;owned\u{7}\u{1b}[2J\rname"]}]});
    let mut writer = TabWriter::for_tables();
    TablePrinter::new(TableOptions::default()).write(&mut writer, &table, "");
    let text = writer.flush();
    assert!(!text.contains(['\u{1b}', '\r']), "{text:?}");
}
