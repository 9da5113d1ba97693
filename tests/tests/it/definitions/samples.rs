//! Objects of these kinds that the modules have as examples and as data of tests go through create, apply and watch.
//!
//! kube-apiserver 1.36.4's errors and warnings for them are recorded beside this file. It reports errors in no
//! order, so they are compared sorted.

use std::collections::{BTreeMap, BTreeSet};

use ferry_tests::{CommandOutput, definitions::GoModules};
use serde_json::{Value, json};

use super::{kinds::ServedKind, world::DefinitionsTest};

/// Samples per kind: some have a hundred that are much alike.
const OF_KIND: usize = 12;

/// Sends all samples.
pub fn check(world: &DefinitionsTest, modules: &GoModules, kinds: &[ServedKind]) {
    let samples = samples(modules, kinds);
    assert!(samples.len() > 200, "{}", samples.len());
    let all: String = samples.iter().map(|(_, sample)| format!("---\n{sample}\n")).collect();
    let revision = revision(world);

    let created = world.kubectl(&["create", "-f", "-"], Some(&all));
    world.compare("created.txt", &said(&created));
    let applied = world.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&all));
    world.compare("applied.txt", &said(&applied));

    let accepted = [names(&created, " created"), names(&applied, " serverside-applied")];
    assert!(accepted.iter().all(|names| names.len() > 150), "{accepted:?}");
    let of_kind = |at: usize| {
        let own = samples.iter().filter(|(kind, _)| *kind == at).map(|(_, sample)| meta_text(sample, "name"));
        own.filter(|name| accepted.iter().any(|names| names.contains(*name))).map(str::to_owned).collect()
    };
    let by_kind: Vec<(&ServedKind, BTreeSet<String>)> =
        kinds.iter().enumerate().map(|(at, kind)| (kind, of_kind(at))).collect();
    let by_kind: Vec<_> = by_kind.into_iter().filter(|(_, names)| !names.is_empty()).collect();
    world.each(&by_kind, |(kind, names)| watched(world, kind, names, &revision));
}

/// Objects of the kinds, each under a name of its own, with the place of its kind.
fn samples(modules: &GoModules, kinds: &[ServedKind]) -> Vec<(usize, Value)> {
    let documents = modules.documents(true, |name| kinds.iter().any(|kind| kind.kind == name));
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for document in documents {
        // Templates are not YAML. The recordings number the documents that this parser accepts.
        let Ok(mut object) = serde_yaml_ng::from_str::<Value>(&document.text) else { continue };
        let of = |kind: &ServedKind| {
            object["apiVersion"] == kind.api_version().as_str() && object["kind"] == kind.kind.as_str()
        };
        let Some(kind) = kinds.iter().position(of) else { continue };
        // The rest of it is often what a server has said.
        object["metadata"] = json!({});
        if out.iter().filter(|(other, _)| *other == kind).count() < OF_KIND && seen.insert(object.to_string()) {
            object["metadata"]["name"] = format!("sample-{}", out.len()).into();
            out.push((kind, object));
        }
    }
    out
}

fn revision(world: &DefinitionsTest) -> String {
    let list = world.kubectl(&["get", "--raw", "/api/v1/namespaces"], None).expect_success();
    meta_text(&serde_json::from_str(&list).expect("a list"), "resourceVersion").to_owned()
}

/// kubectl's errors, sorted.
fn said(told: &CommandOutput) -> String {
    let mut lines: Vec<String> = told.stderr.lines().map(sorted).collect();
    lines.sort();
    lines.join("\n") + "\n"
}

/// A line whose list of faults is sorted. Of the fields that a schema does not know any may be the one that is told.
fn sorted(line: &str) -> String {
    if let Some((before, _)) =
        line.strip_suffix(": field not declared in schema").and_then(|line| line.rsplit_once('.'))
    {
        return format!("{before}.*: field not declared in schema");
    }
    let Some((before, faults)) = line.split_once(": [") else { return line.trim_end().to_owned() };
    let mut faults: Vec<&str> = faults.trim_end_matches(']').split(", ").collect();
    faults.sort_unstable();
    format!("{before}: [{}]", faults.join(", "))
}

/// The names of objects that something was done with.
fn names(told: &CommandOutput, done: &str) -> BTreeSet<String> {
    let lines = told.stdout.lines().filter_map(|line| line.strip_suffix(done));
    lines.filter_map(|line| Some(line.rsplit_once('/')?.1.to_owned())).collect()
}

/// A list has them, and a watch from before they were there shows how they came to be what the list says.
fn watched(world: &DefinitionsTest, kind: &ServedKind, names: &BTreeSet<String>, revision: &str) {
    let list = world.kubectl(&["get", "--raw", &kind.path()], None).expect_success();
    let list: Value = serde_json::from_str(&list).expect("a list");
    let revision_of =
        |object: &Value| (meta_text(object, "name").to_owned(), meta_text(object, "resourceVersion").to_owned());
    let wanted: BTreeMap<String, String> = list["items"].as_array().into_iter().flatten().map(revision_of).collect();
    assert!(names.iter().all(|name| wanted.contains_key(name)), "{}: {names:?} {wanted:?}", kind.resource());

    let path = format!("{}?watch=true&timeoutSeconds=60&resourceVersion={revision}", kind.path());
    let mut shown = BTreeMap::new();
    world.stream(&["get", "--raw", &path], |line| {
        let event: Value = serde_json::from_str(line).expect("an event");
        let (name, revision) = revision_of(&event["object"]);
        let type_ = if shown.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        assert_eq!(event["type"], type_, "{} {name}", kind.resource());
        shown.insert(name, revision);
        shown == wanted
    });
    assert_eq!(shown, wanted, "{}", kind.resource());
}

fn meta_text<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}
