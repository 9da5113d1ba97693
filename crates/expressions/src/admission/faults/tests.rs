//! Invalid expressions, and the order of their errors.

use serde_json::json;

use super::*;

fn shown(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn faults_stand_where_their_fields_do() {
    let fault = |field: &str| FieldError::required(field, "");
    let mut errors: Vec<FieldError> = [
        "spec.failurePolicy",
        "spec.matchConditions[0].name",
        "spec.variables[0].name",
        "spec.variables[1].expression",
        "spec.validations[0].message",
        "spec.auditAnnotations[0].key",
    ]
    .map(fault)
    .into();
    let found = [
        "spec.matchConditions[0].expression",
        "spec.matchConditions[1].expression",
        "spec.variables[0].expression",
        "spec.validations[0].messageExpression",
        "spec.validations[1].expression",
        "spec.auditAnnotations[0].valueExpression",
    ];
    merge(&mut errors, found.map(fault).into());
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.failurePolicy",
            "spec.matchConditions[0].expression",
            "spec.matchConditions[0].name",
            "spec.matchConditions[1].expression",
            "spec.variables[0].name",
            "spec.variables[0].expression",
            "spec.variables[1].expression",
            "spec.validations[0].messageExpression",
            "spec.validations[0].message",
            "spec.validations[1].expression",
            "spec.auditAnnotations[0].key",
            "spec.auditAnnotations[0].valueExpression",
        ]
    );
}

fn validating(spec: Json, want: &[&str]) {
    let found = shown(&of_validating(&json!({"metadata": {"name": "p"}, "spec": spec}), None));
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.contains(want), "{found}\nlacks\n{want}");
    }
}

#[test]
fn expressions_of_validating_policies() {
    let one = |expression: &str| json!({"validations": [{"expression": expression}]});
    validating(one("object.spec.replicas <= 5"), &[]);
    validating(one("authorizer.requestResource.check('get').allowed()"), &[]);
    validating(one("namespaceObject.metadata.name == request.namespace && oldObject == null"), &[]);
    validating(
        one("object.x"),
        &["spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn"],
    );
    validating(one("'a'"), &["must evaluate to bool but got string"]);
    validating(one("[1]"), &["must evaluate to bool but got list(int)"]);
    validating(one("object."), &["compilation failed: ERROR: <input>:1:8: Syntax error"]);
    validating(one("params.x == 1"), &["undeclared reference to 'params' (in container '')"]);
    validating(one("variables.x"), &["undeclared reference to 'variables'"]);
    validating(one("request.object == null"), &["undefined field 'object'"]);
    validating(one("Object{} == object"), &["undeclared reference to 'Object'"]);
    validating(json!({"paramKind": {"kind": "X"}, "validations": [{"expression": "params == null"}]}), &[]);
    let message = |message: &str| json!({"validations": [{"expression": "true", "messageExpression": message}]});
    validating(message("'x' + object.metadata.name"), &[]);
    validating(
        message("1"),
        &["spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int"],
    );
    validating(
        message("string(authorizer.path('/x').check('get').allowed())"),
        &["undeclared reference to 'authorizer'"],
    );
    let annotation = |value: &str| json!({"auditAnnotations": [{"key": "k", "valueExpression": value}]});
    validating(annotation("null"), &[]);
    validating(annotation("true"), &["must evaluate to one of [string null_type] but got bool"]);
}

#[test]
fn variables_know_those_before_them() {
    let with = |variables: Json, expression: &str| json!({"variables": variables, "validations": [{"expression": expression}]});
    let ab = json!([{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}]);
    validating(with(ab.clone(), "variables.b == 2"), &[]);
    validating(with(ab.clone(), "variables.b"), &["must evaluate to bool but got int"]);
    validating(with(ab, "variables.c"), &["undefined field 'c'"]);
    let ba = json!([{"name": "b", "expression": "variables.a"}, {"name": "a", "expression": "1"}]);
    validating(
        with(ba, "variables.b == 2"),
        &[
            "spec.variables[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: <input>:1:10: undefined field 'a'",
        ],
    );
}

#[test]
fn conditions_that_did_not_change_are_not_looked_at() {
    let policy = |condition: &str| {
        json!({"spec": {"matchConditions": [{"name": "a", "expression": condition}],
        "validations": [{"expression": "true"}]}})
    };
    assert_eq!(of_validating(&policy("bad."), Some(&policy("bad."))), []);
    assert_eq!(of_validating(&policy("bad."), Some(&policy("true"))).len(), 1);
    let hooks = |condition: &str| json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": condition}]}]});
    assert_eq!(of_webhooks(&hooks("bad."), Some(&hooks("bad."))), []);
    assert_eq!(of_webhooks(&hooks("params.x"), None).len(), 1);
    assert_eq!(of_webhooks(&hooks("variables.x"), None).len(), 1);
    assert_eq!(of_webhooks(&hooks("object.x == 1 && request.dryRun"), None), []);
    assert_eq!(of_webhooks(&hooks(" "), None), [], "the tables say so");
}

fn mutating(mutation: Json, want: &[&str]) {
    let found = shown(&of_mutating(&json!({"spec": {"mutations": [mutation]}}), None));
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.contains(want), "{found}\nlacks\n{want}");
    }
}

#[test]
fn expressions_of_mutating_policies() {
    let apply =
        |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    mutating(apply("Object{spec: Object.spec{replicas: 1}}"), &[]);
    mutating(apply("Object{spec: 'any'}"), &[]);
    mutating(apply("Object.spec{}"), &["must evaluate to Object but got Object.spec"]);
    mutating(apply("object"), &["must evaluate to Object but got dyn"]);
    mutating(apply("JSONPatch{op: 'add'}"), &["must evaluate to Object but got JSONPatch"]);
    mutating(patch("[JSONPatch{op: 'add', path: '/a', value: 1}]"), &[]);
    mutating(patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]"), &[]);
    mutating(patch("JSONPatch{op: 'add'}"), &["must evaluate to list(JSONPatch) but got JSONPatch"]);
    mutating(patch("[JSONPatch{op: 1}]"), &["expected type of field 'op' is 'string' but provided type is 'int'"]);
    mutating(patch("[]"), &["must evaluate to list(JSONPatch) but got list(dyn)"]);
    mutating(patch("[1"), &["spec.mutations[0].jsonPatch.expression: Invalid value: \"[1\": compilation failed"]);
    mutating(json!({"patchType": "X"}), &[]);
}
