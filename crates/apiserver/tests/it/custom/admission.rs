//! Policies look at custom resources, and change them, without losing anything.

use serde_json::{Value, json};

use crate::custom::world::{BOATS, DEFINITIONS, World, boat, boats, definition, version};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn rules() -> Value {
    json!({"resourceRules": [{"apiGroups": ["harbour.example.io"], "apiVersions": ["v1"], "resources": ["boats"],
        "operations": ["CREATE", "UPDATE"]}]})
}

async fn bind(world: &World, kind: &str, policy: Value, binding: Value) {
    world.create(&format!("{GROUP}/{kind}admissionpolicies"), json!({"metadata": {"name": "p"}, "spec": policy})).await;
    let bindings = format!("{GROUP}/{kind}admissionpolicybindings");
    world.create(&bindings, json!({"metadata": {"name": "b"}, "spec": binding})).await;
    // A list has what the server's views have.
    assert_eq!(world.get(&bindings).await.0, 200);
}

#[tokio::test]
async fn a_policy_changes_a_custom_resource_by_its_schema() {
    let world = World::new().await;
    world
        .create(
            DEFINITIONS,
            boats(json!({"type": "object", "properties": {"size": {"type": "integer"}, "flag": {"type": "string"},
                "crew": {"type": "array", "items": {"type": "string"}}}})),
        )
        .await;
    let mutations = json!([
        {"patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{spec: Object.spec{flag: 'white'}}"}},
        {"patchType": "JSONPatch",
            "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/crew', value: ['a']}]"}},
    ]);
    let policy = json!({"matchConstraints": rules(), "reinvocationPolicy": "Never", "mutations": mutations});
    bind(&world, "mutating", policy, json!({"policyName": "p"})).await;
    let created = world.create(BOATS, boat("b", json!({"size": 3}))).await;
    assert_eq!(created["spec"], json!({"size": 3, "flag": "white", "crew": ["a"]}));
}

#[tokio::test]
async fn a_policy_refuses_a_custom_resource() {
    let world = World::new().await;
    world.create(DEFINITIONS, boats(json!({"type": "object", "properties": {"size": {"type": "integer"}}}))).await;
    let validations = json!([{"expression": "object.spec.size < 3", "message": "too large"}]);
    let policy = json!({"matchConstraints": rules(), "validations": validations});
    bind(&world, "validating", policy, json!({"policyName": "p", "validationActions": ["Deny"]})).await;
    let (code, refused) = world.post(BOATS, &boat("b", json!({"size": 3}))).await;
    assert!(code == 422 && refused["message"].as_str().unwrap().ends_with("denied request: too large"), "{refused}");
    world.create(BOATS, boat("b", json!({"size": 2}))).await;
}

#[tokio::test]
async fn a_policy_for_another_version_sees_that_version() {
    let world = World::new().await;
    let spec = || json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let versions = json!([version("v1", true, spec()), version("v1beta1", false, spec())]);
    world.create(DEFINITIONS, definition("boats", "Boat", versions)).await;
    let mut constraints = rules();
    constraints["resourceRules"][0]["apiVersions"] = json!(["v1beta1"]);
    let expression = "object.apiVersion == 'harbour.example.io/v1beta1' && object.spec.size < 3";
    let policy = json!({"matchConstraints": constraints, "validations": [{"expression": expression, "message": "no"}]});
    bind(&world, "validating", policy, json!({"policyName": "p", "validationActions": ["Deny"]})).await;
    assert_eq!(world.post(BOATS, &boat("b", json!({"size": 3}))).await.0, 422);
    world.create(BOATS, boat("b", json!({"size": 2}))).await;
}
