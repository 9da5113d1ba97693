//! Policies about custom resources: as objects, as parameters, and in another version than that of the request.

use serde_json::{Value, json};

use crate::admission::world::World;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A definition of two versions, in which everything is known but nothing is required.
async fn define(world: &World) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string", "default": "blue"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}}}}}}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema});
    let definition = json!({"metadata": {"name": "boats.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
        "names": {"plural": "boats", "kind": "Boat"}, "versions": [version("v1"), version("v2")]}});
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    while world.send("GET", "/apis/e.com/v1/boats", &Value::Null).await.code != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn policies_are_about_custom_resources_too() {
    let world = World::new(&[]).await;
    define(&world).await;
    let boats = |version: &str| format!("/apis/e.com/{version}/namespaces/default/boats");
    let rule = json!({"apiGroups": ["e.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["boats"]});
    let constraints = json!({"resourceRules": [rule], "objectSelector": {"matchExpressions": [{"key": "param", "operator": "DoesNotExist"}]}});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, "paramKind": {"apiVersion": "e.com/v1", "kind": "Boat"},
        "validations": [{"expression": "object.spec.size <= params.spec.size",
            "messageExpression": "object.apiVersion + ' ' + string(object.spec.size) + ' > ' + string(params.spec.size)"}]}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "most", "parameterNotFoundAction": "Deny"}}});
    let boat = |name: &str, size: i64| json!({"metadata": {"name": name}, "spec": {"size": size}, "kind": "Boat", "apiVersion": "e.com/v1"});
    let mut most = boat("most", 5);
    most["metadata"]["labels"] = json!({"param": "yes"});
    world.create(&boats("v1"), most).await;
    world.create(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    world.create(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    world.settle(&format!("{GROUP}/validatingadmissionpolicybindings")).await;
    let denied = "boats.e.com \"large\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: e.com/v1 6 > 5";
    world.check("POST", &boats("v1"), boat("small", 5), (201, "")).await;
    world.check("POST", &boats("v1"), boat("large", 6), (422, denied)).await;
    let mut other = boat("large", 6);
    other["apiVersion"] = json!("e.com/v2");
    world.check("POST", &boats("v2"), other, (422, denied)).await;
}

#[tokio::test]
async fn policies_change_custom_resources_too() {
    let world = World::new(&[]).await;
    define(&world).await;
    let check = async |version: &str, mutation: Value, want: Result<Value, &str>| {
        let rule =
            json!({"apiGroups": ["e.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["boats"]});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "mutations": [mutation]});
        let policies = format!("{GROUP}/mutatingadmissionpolicies");
        world.create(&policies, json!({"metadata": {"name": "p"}, "spec": spec})).await;
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        let bindings = format!("{GROUP}/mutatingadmissionpolicybindings");
        world.create(&bindings, binding).await;
        world.settle(&bindings).await;
        let boat = json!({"apiVersion": format!("e.com/{version}"), "kind": "Boat", "metadata": {"name": "b"},
            "spec": {"size": 1, "parts": [{"name": "a", "count": 1}]}});
        let path = format!("/apis/e.com/{version}/namespaces/default/boats?dryRun=All");
        let answer = world.send("POST", &path, &boat).await;
        match want {
            Ok(spec) => {
                assert_eq!(answer.code, 201, "{}", answer.body);
                assert_eq!(
                    (&answer.body["spec"], &answer.body["apiVersion"]),
                    (&spec, &boat["apiVersion"]),
                    "{mutation}"
                );
            }
            Err(why) => {
                assert_eq!(
                    answer.body["message"],
                    format!("policy 'p' with binding 'p' denied request: {why}"),
                    "{mutation}"
                );
            }
        }
        world.check("DELETE", &format!("{policies}/p"), Value::Null, (200, "")).await;
        world.check("DELETE", &format!("{bindings}/p"), Value::Null, (200, "")).await;
        world.settle(&bindings).await;
    };
    let apply =
        |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let parts = json!([{"name": "a", "count": 1}]);
    let two = "Object{spec: Object.spec{size: 2, parts: [Object.spec.parts{name: 'b', count: 2}]}}";
    let merged = json!({"size": 2, "color": "blue", "parts": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]});
    check("v1", apply(two), Ok(merged.clone())).await;
    check("v2", apply(two), Ok(merged)).await;
    let red = "[JSONPatch{op: 'add', path: '/spec/color', value: 'red'}, JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]";
    check("v1", patch(red), Ok(json!({"size": 1, "color": "red", "parts": parts}))).await;
    let atomic =
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tags";
    check("v1", apply("Object{spec: Object.spec{tags: ['x']}}"), Err(atomic)).await;
    let unknown = "error applying patch: failed to convert patch object to typed object: .spec.nope: field not declared in schema";
    check("v1", apply("Object{spec: Object.spec{nope: 1}}"), Err(unknown)).await;
}
