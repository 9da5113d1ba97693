//! Server-side apply of generated objects of every kind: to apply what one applied changes nothing.

mod generate;

use fastrand::Rng;
use ferry_api::{
    Value, apply, defaults, meta,
    schema::{Resource, schema},
};

/// How many objects of each kind are applied, and how many are made for that at most: generated lists may name an element
/// twice or not at all, which nobody may apply.
const APPLIED: usize = 5;
const MADE: usize = 200;

#[test]
fn applying_ones_own_object_again_changes_nothing() {
    let mut rng = Rng::with_seed(6);
    for resource in schema().resources().iter().filter(|resource| resource.verbs.contains(&"patch")) {
        let applied = (0..MADE).filter(|_| applies(resource, &configuration(&mut rng, resource))).take(APPLIED).count();
        assert_eq!(applied, APPLIED, "{}", resource.qualified_name());
    }
}

/// Whether a configuration can be applied; if so, applying it again changes nothing.
fn applies(resource: &Resource, config: &Value) -> bool {
    let writer = |now| apply::Writer { kind: apply::Kind::of(resource, ""), manager: "me", now };
    let once = match apply::apply(&writer("2026-01-01T00:00:00Z"), None, config, false) {
        Ok(once) => once,
        Err(apply::ApplyError::Patch { .. }) => return false,
        Err(error) => panic!("{}: {error}: {config}", resource.qualified_name()),
    };
    assert!(meta::at(&once, &["metadata", "managedFields"]).is_some(), "{}: {config}", resource.qualified_name());
    let twice = apply::apply(&writer("2026-01-01T00:00:09Z"), Some(&once), config, false).expect("what is there");
    assert!(apply::same_but_times(&twice, &once), "{}: {config}\n{once}\n{twice}", resource.qualified_name());
    true
}

/// An object as a client would apply it that read it: with defaults, which may not contradict it.
fn configuration(rng: &mut Rng, resource: &Resource) -> Value {
    let mut object = generate::object(rng, resource.ty);
    defaults::apply(resource.ty, &mut object);
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
    let metadata = meta::metadata_mut(&mut object);
    metadata.remove("managedFields");
    metadata.insert("name".to_owned(), "a".into());
    metadata.insert("labels".to_owned(), serde_json::json!({"a": "b"}));
    object
}
