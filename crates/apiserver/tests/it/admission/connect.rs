//! Streams are admitted too: what webhooks are asked about them, and what they may say.

use serde_json::{Value, json};

use crate::admission::{
    webhooks::{Hook, configure},
    world::{World, pod},
};

const POD: &str = "/api/v1/namespaces/default/pods/p";

/// A server whose webhook looks at some streams, and refuses those to a container `secret`.
async fn world(resources: Value) -> (World, Hook) {
    let world = World::new(&[]).await;
    world.create("/api/v1/namespaces/default/pods", pod("p", json!({}))).await;
    world.create("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let hook = Hook::start(|request| {
        let secret = request["object"]["container"] == "secret" || request["object"]["path"] == "/secret";
        json!({"allowed": !secret, "status": {"message": "it is secret", "code": 403}})
    })
    .await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": resources, "operations": ["CONNECT"]});
    configure(&world, "validating", "c", vec![hook.entry("a.e.com", json!({"rules": [rule]}))]).await;
    (world, hook)
}

const REFUSED: &str = "admission webhook \"a.e.com\" denied the request: it is secret";

#[tokio::test]
async fn streams_are_admitted() {
    let (world, hook) =
        world(json!(["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"]))
            .await;
    let cases = [
        ("POST", format!("{POD}/exec?container=secret&command=ls"), Some(("PodExecOptions", "exec"))),
        ("GET", format!("{POD}/exec?container=secret&command=ls"), Some(("PodExecOptions", "exec"))),
        ("POST", format!("{POD}/attach?container=secret"), Some(("PodAttachOptions", "attach"))),
        ("GET", format!("{POD}/attach?container=secret"), Some(("PodAttachOptions", "attach"))),
        ("GET", format!("{POD}/proxy/secret"), Some(("PodProxyOptions", "proxy"))),
        ("PUT", format!("{POD}/proxy/secret"), Some(("PodProxyOptions", "proxy"))),
        ("DELETE", format!("{POD}/proxy/secret"), Some(("PodProxyOptions", "proxy"))),
        ("GET", "/api/v1/namespaces/default/services/s/proxy/secret".into(), Some(("ServiceProxyOptions", "proxy"))),
        ("GET", "/api/v1/nodes/n/proxy/secret".into(), Some(("NodeProxyOptions", "proxy"))),
        // What is let through fails for another reason: nothing runs here.
        ("POST", format!("{POD}/exec?container=c&command=ls"), None),
        ("POST", format!("{POD}/portforward"), None),
        ("GET", format!("{POD}/proxy/open"), None),
    ];
    for (method, path, refused) in cases {
        let answer = world.send(method, &path, &Value::Null).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        let asked = hook.asked.lock().unwrap().pop().unwrap_or_default();
        let asked = &asked["request"];
        assert_eq!(asked["operation"], "CONNECT", "{method} {path}: {message}");
        assert_eq!(
            (message == REFUSED, answer.code == 403),
            (refused.is_some(), refused.is_some()),
            "{path}: {message}"
        );
        if let Some((kind, subresource)) = refused {
            assert_eq!((&asked["kind"]["kind"], &asked["subResource"]), (&json!(kind), &json!(subresource)));
        }
    }
}

#[tokio::test]
async fn logs_are_only_read() {
    let (world, hook) = world(json!(["pods/*"])).await;
    let answer = world.send("GET", &format!("{POD}/log?container=secret"), &Value::Null).await;
    assert_eq!((answer.code, hook.asked.lock().unwrap().len()), (400, 0), "{}", answer.body);
}
