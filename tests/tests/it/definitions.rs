//! Definitions of others, from their Go modules, in the shipped API server, by the real kubectl: what kube-apiserver accepts
//! is accepted, established, explained and watched; what it refuses is refused in its words. Skipped, said aloud, where
//! the modules cannot be had.

mod explained;
mod kinds;
mod samples;
mod world;

use ferry_tests::{
    definitions::{CrdSource, GoModules},
    eventually,
};

use self::kinds::ServedKind;
use self::world::DefinitionsTest;

/// kube-apiserver 1.36.4's error for a CRD without a schema.
const NO_SCHEMA: &str = "Error from server (Invalid): error when creating \"STDIN\": \
    CustomResourceDefinition.apiextensions.k8s.io \"examples.example.io\" is invalid: \
    [spec.versions[0].schema.openAPIV3Schema: Required value, spec.preserveUnknownFields: Invalid value: true: cannot set to \
    true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead]\n";

#[test]
fn definitions_of_others_are_served_as_kube_apiserver_serves_them() {
    let Some(modules) = GoModules::fetch() else { return };
    let found = modules.definitions();
    let lengths = [&found.counted, &found.more, &found.refused, &found.outdated].map(Vec::len);
    assert_eq!(lengths, [94, 1, 8, 5]);
    let accepted: Vec<&CrdSource> = found.counted.iter().chain(&found.more).collect();
    let kinds: Vec<ServedKind> = accepted.iter().flat_map(|definition| ServedKind::of(definition)).collect();

    let world = DefinitionsTest::start();
    refused(&world, &found.refused, &found.outdated);
    established(&world, &accepted);
    listed(&world, &kinds);
    explained::check(&world, &kinds);
    samples::check(&world, &modules, &kinds);
}

fn refused(world: &DefinitionsTest, refused: &[CrdSource], outdated: &[CrdSource]) {
    let told = world.kubectl(&["create", "-f", "-"], Some(&joined(refused))).expect_failure();
    assert_eq!(told, NO_SCHEMA.repeat(refused.len()));
    let told = world.kubectl(&["create", "-f", "-"], Some(&joined(outdated))).expect_failure();
    let why = "no matches for kind \"CustomResourceDefinition\" in version \"apiextensions.k8s.io/v1beta1\"";
    assert_eq!(told.matches(why).count(), outdated.len(), "{told}");
}

fn joined<'a>(definitions: impl IntoIterator<Item = &'a CrdSource>) -> String {
    definitions.into_iter().map(|definition| format!("---\n{}\n", definition.document.text)).collect()
}

fn established(world: &DefinitionsTest, accepted: &[&CrdSource]) {
    let parts: Vec<&[&CrdSource]> = accepted.chunks(accepted.len().div_ceil(4)).collect();
    world.each(&parts, |part| {
        let told = world.kubectl(&["create", "-f", "-"], Some(&joined(part.iter().copied()))).expect_success();
        for definition in *part {
            let line = format!("customresourcedefinition.apiextensions.k8s.io/{} created\n", definition.name);
            assert!(told.contains(&line), "{line}: {told}");
        }
    });
    for condition in ["Established", "NamesAccepted"] {
        let wait = ["wait", "crd", "--all", "--timeout=60s", &format!("--for=condition={condition}")];
        // kubectl does not wait for one that has no conditions yet.
        eventually(condition, || match world.kubectl(&wait, None) {
            told if told.code == 0 && told.stdout.lines().count() == accepted.len() => Ok(()),
            told => Err(told.stdout + &told.stderr),
        });
    }
}

/// Discovery leads to every served version.
fn listed(world: &DefinitionsTest, kinds: &[ServedKind]) {
    let names: Vec<String> = kinds.iter().map(ServedKind::resource).collect();
    let told = world.kubectl(&["get", "--all-namespaces", &names.join(",")], None);
    assert_eq!((told.code, told.stderr.contains("No resources found")), (0, true), "{}", told.stderr);
}
