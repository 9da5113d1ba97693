//! Definitions of others, from their Go modules, in the shipped API server, by the real kubectl: what kube-apiserver accepts
//! is accepted, established, explained and watched; what it refuses is refused in its words. Skipped, said aloud, where
//! the modules cannot be had.

mod explained;
mod kinds;
mod samples;
mod world;

use ferry_tests::{
    definitions::{Definition, Modules},
    eventually,
};

use self::kinds::Kind;
use self::world::World;

/// What kube-apiserver 1.36.4 says of a definition without a schema.
const NO_SCHEMA: &str = "Error from server (Invalid): error when creating \"STDIN\": \
    CustomResourceDefinition.apiextensions.k8s.io \"examples.example.io\" is invalid: \
    [spec.versions[0].schema.openAPIV3Schema: Required value, spec.preserveUnknownFields: Invalid value: true: cannot set to \
    true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead]\n";

#[test]
fn definitions_of_others_are_served_as_kube_apiserver_serves_them() {
    let Some(modules) = Modules::fetch() else { return };
    let found = modules.definitions();
    let lengths = [&found.counted, &found.more, &found.refused, &found.outdated].map(Vec::len);
    assert_eq!(lengths, [94, 1, 8, 5]);
    let accepted: Vec<&Definition> = found.counted.iter().chain(&found.more).collect();
    let kinds: Vec<Kind> = accepted.iter().flat_map(|definition| Kind::of(definition)).collect();

    let world = World::start();
    refused(&world, &found.refused, &found.outdated);
    established(&world, &accepted);
    listed(&world, &kinds);
    explained::check(&world, &kinds);
    samples::check(&world, &modules, &kinds);
}

fn refused(world: &World, refused: &[Definition], outdated: &[Definition]) {
    let told = world.kubectl(&["create", "-f", "-"], Some(&joined(refused))).refused();
    assert_eq!(told, NO_SCHEMA.repeat(refused.len()));
    let told = world.kubectl(&["create", "-f", "-"], Some(&joined(outdated))).refused();
    let why = "no matches for kind \"CustomResourceDefinition\" in version \"apiextensions.k8s.io/v1beta1\"";
    assert_eq!(told.matches(why).count(), outdated.len(), "{told}");
}

fn joined<'a>(definitions: impl IntoIterator<Item = &'a Definition>) -> String {
    definitions.into_iter().map(|definition| format!("---\n{}\n", definition.document.text)).collect()
}

fn established(world: &World, accepted: &[&Definition]) {
    let parts: Vec<&[&Definition]> = accepted.chunks(accepted.len().div_ceil(4)).collect();
    world.each(&parts, |part| {
        let told = world.kubectl(&["create", "-f", "-"], Some(&joined(part.iter().copied()))).ok();
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
fn listed(world: &World, kinds: &[Kind]) {
    let names: Vec<String> = kinds.iter().map(Kind::resource).collect();
    let told = world.kubectl(&["get", "--all-namespaces", &names.join(",")], None);
    assert_eq!((told.code, told.stderr.contains("No resources found")), (0, true), "{}", told.stderr);
}
