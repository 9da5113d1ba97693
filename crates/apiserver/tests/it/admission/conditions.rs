//! Match conditions of webhooks: which requests a webhook is asked about, and which configurations are taken.

use ferry_apiserver::{AdmissionOptions, AuthorizationMode, AuthorizationOptions, ServerOptions};
use serde_json::{Value, json};

use crate::{
    admission::{
        webhooks::{CONFIGURATIONS, Hook, MAPS, configure},
        world::World,
    },
    fixture,
};

fn conditions(expressions: &[&str]) -> Value {
    let named = expressions.iter().enumerate();
    named.map(|(at, expression)| json!({"name": format!("c{at}"), "expression": expression})).collect()
}

#[tokio::test]
async fn webhooks_are_asked_where_all_conditions_hold() {
    let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] };
    let admission = AdmissionOptions::default();
    let world = World::of(ServerOptions { authorization, admission, ..fixture::everything() }).await;
    let hook = Hook::start(|_| json!({"allowed": false})).await;
    let check = async |expressions: &[&str], policy: &str, want: (u16, &str)| {
        let more = json!({"matchConditions": conditions(expressions), "failurePolicy": policy});
        configure(&world, "validating", "c", vec![hook.entry("w.e.com", more)]).await;
        let object = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}});
        world.check("POST", &format!("{MAPS}?dryRun=All"), object, want).await;
        let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
        world.check("DELETE", &format!("{path}/c"), json!(null), (200, "")).await;
        world.settle(&path).await;
    };
    let asked = (400, "admission webhook \"w.e.com\" denied the request without explanation");
    let skipped = (201, "");
    check(&["true"], "Fail", asked).await;
    check(&["object.data.k == 'v'", "request.dryRun"], "Fail", asked).await;
    check(&["object.data.k == 'w'"], "Fail", skipped).await;
    check(&["true", "false"], "Fail", skipped).await;
    check(&["request.userInfo.username == 'admin' && request.operation == 'CREATE'"], "Fail", asked).await;
    check(&["request.resource.resource == 'configmaps' && request.namespace == 'default'"], "Fail", asked).await;
    check(&["oldObject == null && namespaceObject == null"], "Fail", asked).await;
    check(&["authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"], "Fail", asked)
        .await;
    check(
        &["authorizer.serviceAccount('default', 'default').group('').resource('secrets').check('get').allowed()"],
        "Fail",
        skipped,
    )
    .await;
    check(&["!authorizer.requestResource.check('nothing').errored()"], "Fail", asked).await;
    let fails = "configmaps \"x\" is forbidden: expression 'object.nope == 1' resulted in error: no such key: nope";
    check(&["object.nope == 1"], "Fail", (403, fails)).await;
    check(&["object.nope == 1"], "Ignore", skipped).await;
    check(&["object.nope == 1", "false"], "Fail", skipped).await;
    let both = "configmaps \"x\" is forbidden: [expression 'object.nope == 1' resulted in error: no such key: nope, expression \
                'object.gone == 1' resulted in error: no such key: gone]";
    check(&["object.nope == 1", "object.gone == 1", "true"], "Fail", (403, both)).await;
}

#[tokio::test]
async fn conditions_must_compile() {
    let world = World::new(&[]).await;
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    let check = async |condition: &str, want: &str| {
        for kind in ["validating", "mutating"] {
            let entry = hook.entry("w.e.com", json!({"matchConditions": conditions(&[condition])}));
            let body = json!({"metadata": {"name": "c"}, "webhooks": [entry]});
            let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations?dryRun=All");
            let answer = world.send("POST", &path, &body).await;
            let message = answer.body["message"].as_str().unwrap_or_default();
            assert_eq!(answer.code, if want.is_empty() { 201 } else { 422 }, "{condition}: {message}");
            assert!(message.contains(want), "{condition}: {message}");
        }
    };
    let at = "webhooks[0].matchConditions[0].expression: ";
    check("object.metadata.name != 'x' || has(request.options)", "").await;
    check(" ", &format!("{at}Required value")).await;
    check("1", &format!("{at}Invalid value: \"1\": must evaluate to bool but got int")).await;
    check("object.spec", &format!("{at}Invalid value: \"object.spec\": must evaluate to bool but got dyn")).await;
    check("true &&", &format!("{at}Invalid value: \"true &&\": compilation failed: ERROR: <input>:1:8: Syntax error"))
        .await;
    check("params.x == 1", "undeclared reference to 'params'").await;
    check("variables.x == 1", "undeclared reference to 'variables'").await;
    check("request.uid == ''", "undefined field 'uid'").await;
    check(
        "request.userInfo.groups.exists(g, g == 1)",
        "found no matching overload for '_==_' applied to '(string, int)'",
    )
    .await;
}
