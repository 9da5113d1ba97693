//! Validation by schemas and rules, and ratcheting of unchanged values.

use serde_json::{Value, json};

use crate::custom::world::{BOATS, BOATS_DEFINITION, DEFINITIONS, World, boat, boats, version};

async fn refused(world: &World, spec: Value, want: &str) {
    let (code, answer) = world.post(BOATS, &boat("x", spec)).await;
    let want = format!("Boat.harbour.example.io \"x\" is invalid: {want}");
    assert_eq!((code, answer["message"].as_str()), (422, Some(want.as_str())));
}

#[tokio::test]
async fn what_was_wrong_before_and_did_not_change_does_not_block() {
    let world = World::new().await;
    world
        .create(
            DEFINITIONS,
            boats(json!({"type": "object", "properties": {"name": {"type": "string"},
        "size": {"type": "integer"}}})),
        )
        .await;
    world.create(BOATS, boat("b", json!({"name": "Ö", "size": 3}))).await;
    let strict = json!([version(
        "v1",
        true,
        json!({"type": "object", "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"}, "size": {"type": "integer", "maximum": 2,
            "x-kubernetes-validations": [{"rule": "self < 3", "message": "too large"}]}}})
    )]);
    assert_eq!(world.patch(BOATS_DEFINITION, &json!({"spec": {"versions": strict}})).await.0, 200);
    let path = format!("{BOATS}/b");
    let (code, answer) = world.patch(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = world.patch(&path, &json!({"spec": {"size": 4}})).await;
    let why = "Boat.harbour.example.io \"b\" is invalid: [spec.size: Invalid value: 4: spec.size in body should be less than \
        or equal to 2, spec.size: Invalid value: 4: too large]";
    assert_eq!((code, answer["message"].as_str()), (422, Some(why)));
    refused(&world, json!({"name": "Ö"}), "spec.name: Invalid value: \"Ö\": spec.name in body should match '^[a-z]+$'")
        .await;
}

#[tokio::test]
async fn rules_look_at_changes_and_say_what_they_want() {
    let world = World::new().await;
    world
        .create(
            DEFINITIONS,
            boats(json!({"type": "object", "properties": {
        "size": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self >= oldSelf", "messageExpression": "oldSelf > 2 ? 'must not shrink' : 'no'"}]},
        "flag": {"type": "string", "maxLength": 8, "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'white'", "optionalOldSelf": true, "reason": "FieldValueForbidden",
                "message": "first is white"}]},
        "crew": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}}},
        "x-kubernetes-validations": [{"rule": "!has(self.crew) || size(self.crew) <= self.size", "fieldPath": ".crew",
            "message": "too many"}]})),
        )
        .await;
    refused(&world, json!({"size": 1, "flag": "black"}), "spec.flag: Forbidden: first is white").await;
    refused(&world, json!({"size": 1, "crew": ["a", "b"]}), "spec.crew: Invalid value: too many").await;
    refused(&world, json!({"size": "1"}), "[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \
        \"string\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
        existing errors to complete validation]").await;
    world.create(BOATS, boat("b", json!({"size": 3, "flag": "white"}))).await;
    let (code, answer) = world.patch(&format!("{BOATS}/b"), &json!({"spec": {"size": 2, "flag": "black"}})).await;
    let why = "Boat.harbour.example.io \"b\" is invalid: spec.size: Invalid value: 2: must not shrink";
    assert_eq!((code, answer["message"].as_str()), (422, Some(why)));
    assert_eq!(world.patch(&format!("{BOATS}/b"), &json!({"spec": {"flag": "black"}})).await.0, 200);
}

#[tokio::test]
async fn rules_that_make_no_sense_or_cost_too_much_are_refused_with_their_definition() {
    let world = World::new().await;
    let place = "spec.validation.openAPIV3Schema.properties[spec]";
    let check = async |spec: Value, want: &str| {
        let (code, answer) = world.post(DEFINITIONS, &boats(spec)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(want), "{code} {message}");
    };
    let old = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 3, "items": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}});
    check(
        old,
        &format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {place}.properties[l]"),
    )
    .await;
    let optional =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "optionalOldSelf": true}]});
    check(optional, "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule").await;
    let costly = json!({"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]});
    check(costly, "estimated rule cost exceeds budget by factor of more than 100x").await;
}
