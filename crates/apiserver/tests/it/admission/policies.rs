//! Policies in CEL: what upstream's kube-apiserver 1.36.4 answers with the policies of `policies.jsonl`, which has a case per
//! line, and what is particular to this server.

use std::path::Path;

use base64::{Engine, prelude::BASE64_STANDARD};
use ferry_apiserver::{AdmissionOptions, AuthorizationMode, AuthorizationOptions, ServerOptions};
use serde_json::{Map, Value, json};

use crate::{
    admission::{
        webhooks::{Hook, MAPS, configure},
        world::{Answer, World},
    },
    fixture,
};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A server that asks roles who may do what, and that keeps an audit log.
async fn audited(log: &Path) -> World {
    let policy =
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]\n";
    let audit = fixture::audit_log(policy, log);
    let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] };
    World::of(ServerOptions { audit, authorization, admission: AdmissionOptions::default(), ..fixture::everything() })
        .await
}

/// The answer in the form of the recording; a generated name is as good as any other.
fn told(answer: &Answer, mutating: bool, log: &Path) -> Value {
    let mut told = json!({"code": answer.code});
    if answer.code >= 300 {
        let message = answer.body["message"].as_str().unwrap_or_default();
        let message = match message.split_once("\"gen-") {
            Some((before, after)) => format!("{before}\"gen-*{}", &after[5..]),
            None => message.to_owned(),
        };
        told["message"] = message.into();
        told["reason"] = answer.body["reason"].clone();
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        if causes.len() > 1 {
            told["causes"] = causes.into_iter().map(|cause| cause["message"].clone()).collect();
        }
    } else if mutating {
        told["object"] = parts(&answer.body);
    }
    if !answer.warnings.is_empty() {
        told["warnings"] = json!(answer.warnings);
    }
    let noted = annotations(log);
    if !noted.is_empty() {
        told["annotations"] = Value::Object(noted);
    }
    told
}

/// The fields that policies may change.
fn parts(object: &Value) -> Value {
    let mut parts = json!({});
    for field in ["data", "spec"] {
        if let Some(value) = object.get(field) {
            parts[field] = value.clone();
        }
    }
    for field in ["labels", "annotations", "ownerReferences"] {
        if let Some(value) = object["metadata"].get(field) {
            parts["metadata"][field] = value.clone();
        }
    }
    parts
}

/// The audit annotations of the last request, without those of authorization.
fn annotations(log: &Path) -> Map<String, Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let all = last["annotations"].as_object().cloned().unwrap_or_default();
    all.into_iter().filter(|(key, _)| !key.starts_with("authorization.k8s.io/")).collect()
}

#[tokio::test]
async fn policies_do_what_upstreams_do() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let world = audited(&log).await;
    let cases: Vec<Value> =
        include_str!("policies.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut differ = Vec::new();
    for case in &cases {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        world.create("/api/v1/namespaces", json!({"metadata": {"name": case["namespace"]}})).await;
        for object in case["objects"].as_array().unwrap() {
            world.create(&text(&object[0]), object[1].clone()).await;
        }
        let kind = text(&case["kind"]);
        world.create(&format!("{GROUP}/{kind}admissionpolicies"), case["policy"].clone()).await;
        world.create(&format!("{GROUP}/{kind}admissionpolicybindings"), case["binding"].clone()).await;
        world.settle(&format!("{GROUP}/{kind}admissionpolicybindings")).await;
        let request = &case["request"];
        let answer = world.send(&text(&request["method"]), &text(&request["path"]), &request["body"]).await;
        let told = told(&answer, kind == "mutating", &log);
        if told != case["want"] {
            differ.push(format!("{}\n  want {}\n  got  {told}", case["about"], case["want"]));
        }
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), cases.len(), differ.join("\n"));
    assert!(cases.len() > 80);
}

#[tokio::test]
async fn expressions_are_refused_as_upstream_refuses_them() {
    let world = World::new(&[]).await;
    let (mut differ, mut count) = (Vec::new(), 0);
    for line in include_str!("expressions.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let path = format!("{}?dryRun=All", case["path"].as_str().unwrap());
        let answer = world.send("POST", &path, &case["body"]).await;
        assert_eq!(answer.code, case["code"], "{}: {}", case["about"], answer.body);
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let causes: Vec<Value> =
            causes.iter().map(|cause| json!([cause["field"], cause["reason"], cause["message"]])).collect();
        let want = case["causes"].as_array().cloned().unwrap_or_default();
        count += want.len();
        for at in 0..causes.len().max(want.len()) {
            let (got, want) = (causes.get(at), want.get(at));
            if got != want {
                let shown = |cause: Option<&Value>| cause.map_or("nothing".to_owned(), Value::to_string);
                differ.push(format!("{}\n  want {}\n  got  {}", case["about"], shown(want), shown(got)));
            }
        }
    }
    assert!(differ.is_empty(), "{} of {count} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(count > 100, "{count}");
}

/// A policy that mutates configuration maps, and its binding.
async fn mutate(world: &World, name: &str, again: &str, conditions: Value, expression: &str) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": again, "matchConditions": conditions,
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]});
    world
        .create(&format!("{GROUP}/mutatingadmissionpolicies"), json!({"metadata": {"name": name}, "spec": spec}))
        .await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    world.create(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await;
    world.settle(&format!("{GROUP}/mutatingadmissionpolicybindings")).await;
}

/// Says how often it was evaluated, and what it saw of `b`.
const COUNTS: &str = "Object{data: {'seen': string(object.?data.?b.orValue('nothing')), 'count': string(int(object.?data.?count.orValue('0')) + 1)}}";

#[tokio::test]
async fn policies_are_evaluated_again_when_others_change_what_they_saw() {
    for (again, seen, count) in [("Never", "nothing", "1"), ("IfNeeded", "policy", "2")] {
        let world = World::new(&[]).await;
        mutate(&world, "a", again, json!([]), COUNTS).await;
        mutate(&world, "b", "Never", json!([]), "Object{data: {'b': 'policy'}}").await;
        let made = world.create(MAPS, json!({"metadata": {"name": "x"}})).await;
        assert_eq!(made["data"], json!({"b": "policy", "count": count, "seen": seen}), "{again}");
    }
}

#[tokio::test]
async fn policies_come_before_webhooks_and_see_what_those_change() {
    for (again, seen, count) in [("Never", "nothing", "1"), ("IfNeeded", "webhook", "2")] {
        let world = World::new(&[]).await;
        mutate(&world, "a", again, json!([]), COUNTS).await;
        let hook = Hook::start(|_| {
            let patch = json!([{"op": "add", "path": "/data/b", "value": "webhook"}]).to_string();
            json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch)})
        })
        .await;
        configure(&world, "mutating", "c", vec![hook.entry("w.e.com", json!({}))]).await;
        let made = world.create(MAPS, json!({"metadata": {"name": "x"}})).await;
        assert_eq!(made["data"], json!({"b": "webhook", "count": count, "seen": seen}), "{again}");
        assert_eq!(
            hook.asked.lock().unwrap()[0]["request"]["object"]["data"]["count"],
            "1",
            "the webhook is asked after the policy"
        );
    }
}

#[tokio::test]
async fn nobody_decides_over_policies_but_the_server() {
    let world = World::new(&[]).await;
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]});
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    world.create(&policies, json!({"metadata": {"name": "no"}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}});
    world.create(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    world.settle(&format!("{GROUP}/validatingadmissionpolicybindings")).await;
    let denied = "ValidatingAdmissionPolicy 'no' with binding 'no' denied request: failed expression: false";
    let map = json!({"metadata": {"name": "x"}});
    world.check("POST", MAPS, map, (422, &format!("configmaps \"x\" is forbidden: {denied}"))).await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    world.check("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, (201, "")).await;
    world.check("DELETE", &format!("{policies}/no"), json!(null), (200, "")).await;
    world.settle(&policies).await;
    world.check("POST", MAPS, json!({"metadata": {"name": "x"}}), (201, "")).await;
}

#[tokio::test]
async fn policies_see_and_change_the_version_that_they_name() {
    let world = World::new(&[]).await;
    let rule = json!({"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["horizontalpodautoscalers"]});
    let conditions = json!([{"name": "a", "expression": "request.resource.version == 'v1' && object.apiVersion == 'autoscaling/v2'"}]);
    let expression = "Object{spec: Object.spec{minReplicas: object.spec.metrics.size() + 1}}";
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "matchConditions": conditions,
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]});
    world.create(&format!("{GROUP}/mutatingadmissionpolicies"), json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
    world.create(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await;
    world.settle(&format!("{GROUP}/mutatingadmissionpolicybindings")).await;
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let made = world.create("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", scaler).await;
    assert_eq!((&made["apiVersion"], &made["spec"]["minReplicas"]), (&json!("autoscaling/v1"), &json!(2)));
}
