//! Server-side apply of random objects of every kind: reapplying changes nothing.

use crate::generate;
use fastrand::Rng;
use ferry_api::{
    Value, apply, defaults, meta,
    schema::{Resource, schema},
};

/// The number of objects applied per kind, and the maximum of attempts: random lists may have duplicate or missing
/// keys, which cannot be applied.
const OBJECTS_PER_KIND: usize = 5;
const MAX_ATTEMPTS: usize = 200;

#[test]
fn reapplying_an_object_changes_nothing() {
    let mut rng = Rng::with_seed(6);
    for resource in schema().resources().iter().filter(|resource| resource.verbs.contains(&"patch")) {
        let applied = (0..MAX_ATTEMPTS)
            .filter(|_| check_reapply(resource, &random_configuration(&mut rng, resource)))
            .take(OBJECTS_PER_KIND)
            .count();
        assert_eq!(applied, OBJECTS_PER_KIND, "{}", resource.qualified_name());
    }
}

/// Whether a configuration can be applied; if so, reapplying it must change nothing.
fn check_reapply(resource: &Resource, config: &Value) -> bool {
    let writer =
        |now| apply::ApplyRequest { target: apply::ApplyTarget::for_resource(resource, ""), manager: "me", now };
    let once = match apply::apply_config(&writer("2026-01-01T00:00:00Z"), None, config, false) {
        Ok(once) => once,
        Err(apply::ApplyError::Patch { .. }) => return false,
        Err(error) => panic!("{}: {error}: {config}", resource.qualified_name()),
    };
    assert!(meta::value_at(&once, &["metadata", "managedFields"]).is_some(), "{}: {config}", resource.qualified_name());
    let twice =
        apply::apply_config(&writer("2026-01-01T00:00:09Z"), Some(&once), config, false).expect("what is there");
    assert!(
        apply::equal_ignoring_timestamps(&twice, &once),
        "{}: {config}\n{once}\n{twice}",
        resource.qualified_name()
    );
    true
}

/// A random configuration with defaults applied.
fn random_configuration(rng: &mut Rng, resource: &Resource) -> Value {
    let mut object = generate::random_object(rng, resource.ty);
    defaults::apply_defaults(resource.ty, &mut object);
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
    let metadata = meta::metadata_mut(&mut object);
    metadata.remove("managedFields");
    metadata.insert("name".to_owned(), "a".into());
    metadata.insert("labels".to_owned(), serde_json::json!({"a": "b"}));
    object
}
