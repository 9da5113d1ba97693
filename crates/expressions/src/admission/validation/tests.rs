//! Invalid expressions, and the order of their errors.

use serde_json::json;

use super::*;

fn error_texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn errors_are_merged_in_field_order() {
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
    merge_errors(&mut errors, found.map(fault).into());
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

fn assert_validating_errors(spec: Json, want: &[&str]) {
    let found = error_texts(&validate_validating_policy(&json!({"metadata": {"name": "p"}, "spec": spec}), None));
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.contains(want), "{found}\nlacks\n{want}");
    }
}

#[test]
fn validating_policy_expressions_are_compiled() {
    let one = |expression: &str| json!({"validations": [{"expression": expression}]});
    assert_validating_errors(one("object.spec.replicas <= 5"), &[]);
    assert_validating_errors(one("authorizer.requestResource.check('get').allowed()"), &[]);
    assert_validating_errors(one("namespaceObject.metadata.name == request.namespace && oldObject == null"), &[]);
    assert_validating_errors(
        one("object.x"),
        &["spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn"],
    );
    assert_validating_errors(one("'a'"), &["must evaluate to bool but got string"]);
    assert_validating_errors(one("[1]"), &["must evaluate to bool but got list(int)"]);
    assert_validating_errors(one("object."), &["compilation failed: ERROR: <input>:1:8: Syntax error"]);
    assert_validating_errors(one("params.x == 1"), &["undeclared reference to 'params' (in container '')"]);
    assert_validating_errors(one("variables.x"), &["undeclared reference to 'variables'"]);
    assert_validating_errors(one("request.object == null"), &["undefined field 'object'"]);
    assert_validating_errors(one("Object{} == object"), &["undeclared reference to 'Object'"]);
    assert_validating_errors(
        json!({"paramKind": {"kind": "X"}, "validations": [{"expression": "params == null"}]}),
        &[],
    );
    let message = |message: &str| json!({"validations": [{"expression": "true", "messageExpression": message}]});
    assert_validating_errors(message("'x' + object.metadata.name"), &[]);
    assert_validating_errors(
        message("1"),
        &["spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int"],
    );
    assert_validating_errors(
        message("string(authorizer.path('/x').check('get').allowed())"),
        &["undeclared reference to 'authorizer'"],
    );
    let annotation = |value: &str| json!({"auditAnnotations": [{"key": "k", "valueExpression": value}]});
    assert_validating_errors(annotation("null"), &[]);
    assert_validating_errors(annotation("true"), &["must evaluate to one of [string null_type] but got bool"]);
}

#[test]
fn variables_may_use_earlier_variables() {
    let with = |variables: Json, expression: &str| json!({"variables": variables, "validations": [{"expression": expression}]});
    let ab = json!([{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}]);
    assert_validating_errors(with(ab.clone(), "variables.b == 2"), &[]);
    assert_validating_errors(with(ab.clone(), "variables.b"), &["must evaluate to bool but got int"]);
    assert_validating_errors(with(ab, "variables.c"), &["undefined field 'c'"]);
    let ba = json!([{"name": "b", "expression": "variables.a"}, {"name": "a", "expression": "1"}]);
    assert_validating_errors(
        with(ba, "variables.b == 2"),
        &[
            "spec.variables[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: <input>:1:10: undefined field 'a'",
        ],
    );
}

#[test]
fn unchanged_conditions_are_not_compiled() {
    let policy = |condition: &str| {
        json!({"spec": {"matchConditions": [{"name": "a", "expression": condition}],
        "validations": [{"expression": "true"}]}})
    };
    assert_eq!(validate_validating_policy(&policy("bad."), Some(&policy("bad."))), []);
    assert_eq!(validate_validating_policy(&policy("bad."), Some(&policy("true"))).len(), 1);
    let hooks = |condition: &str| json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": condition}]}]});
    assert_eq!(validate_webhooks(&hooks("bad."), Some(&hooks("bad."))), []);
    assert_eq!(validate_webhooks(&hooks("params.x"), None).len(), 1);
    assert_eq!(validate_webhooks(&hooks("variables.x"), None).len(), 1);
    assert_eq!(validate_webhooks(&hooks("object.x == 1 && request.dryRun"), None), []);
    assert_eq!(validate_webhooks(&hooks(" "), None), [], "the tables say so");
}

fn assert_mutating_errors(mutation: Json, want: &[&str]) {
    let found = error_texts(&validate_mutating_policy(&json!({"spec": {"mutations": [mutation]}}), None));
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.contains(want), "{found}\nlacks\n{want}");
    }
}

#[test]
fn mutating_policy_expressions_are_compiled() {
    let apply =
        |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    assert_mutating_errors(apply("Object{spec: Object.spec{replicas: 1}}"), &[]);
    assert_mutating_errors(apply("Object{spec: 'any'}"), &[]);
    assert_mutating_errors(apply("Object.spec{}"), &["must evaluate to Object but got Object.spec"]);
    assert_mutating_errors(apply("object"), &["must evaluate to Object but got dyn"]);
    assert_mutating_errors(apply("JSONPatch{op: 'add'}"), &["must evaluate to Object but got JSONPatch"]);
    assert_mutating_errors(patch("[JSONPatch{op: 'add', path: '/a', value: 1}]"), &[]);
    assert_mutating_errors(
        patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]"),
        &[],
    );
    assert_mutating_errors(patch("JSONPatch{op: 'add'}"), &["must evaluate to list(JSONPatch) but got JSONPatch"]);
    assert_mutating_errors(
        patch("[JSONPatch{op: 1}]"),
        &["expected type of field 'op' is 'string' but provided type is 'int'"],
    );
    assert_mutating_errors(patch("[]"), &["must evaluate to list(JSONPatch) but got list(dyn)"]);
    assert_mutating_errors(
        patch("[1"),
        &["spec.mutations[0].jsonPatch.expression: Invalid value: \"[1\": compilation failed"],
    );
    assert_mutating_errors(json!({"patchType": "X"}), &[]);
}
