//! NodeRestriction.

use serde_json::{Value, json};

use crate::admission::world::{World, pod};

async fn world() -> (World, Value, Value) {
    let world = World::new(&["NodeRestriction"]).await;
    let node = world.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    world.create("/api/v1/nodes", json!({"metadata": {"name": "n2"}})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mine = world.create(pods, pod("mine", json!({"nodeName": "n1"}))).await;
    world.create(pods, pod("theirs", json!({"nodeName": "n2"}))).await;
    (world, node, mine)
}

/// Sends what the node `n1` sends; "" is a yes.
async fn check(world: &World, method: &str, path: &str, body: Value, why: &str) {
    // Whoever is in this group passes authorization, whatever the chain is.
    let groups = ["system:nodes", "system:masters"];
    let answer = world.send_as("system:node:n1", &groups, method, path, &body).await;
    let said = if answer.code < 300 { "" } else { answer.body["message"].as_str().unwrap_or_default() };
    let said = said.split_once(" is forbidden: ").map_or(said, |(_, why)| why);
    assert_eq!(said, why, "{method} {path} {body}");
    assert!(answer.code < 300 || answer.code == 403, "{}", answer.code);
}

#[tokio::test]
async fn kubelets_change_their_own_node_only() {
    let (world, _, _) = world().await;
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    check(&world, "PATCH", "/api/v1/nodes/n1", labels(json!({"kubernetes.io/hostname": "h"})), "").await;
    check(&world, "PATCH", "/api/v1/nodes/n1", labels(json!({"node.kubernetes.io/x": "h", "e.com/x": "y"})), "").await;
    check(&world, "PATCH", "/api/v1/nodes/n1", labels(json!({"sub.kubelet.kubernetes.io/x": "h"})), "").await;
    let other = "node \"n1\" is not allowed to modify node \"n2\"";
    check(&world, "PATCH", "/api/v1/nodes/n2", labels(json!({"a": "b"})), other).await;
    check(&world, "DELETE", "/api/v1/nodes/n2", Value::Null, other).await;
    let three = json!({"metadata": {"name": "n3"}});
    check(&world, "POST", "/api/v1/nodes", three, "node \"n1\" is not allowed to modify node \"n3\"").await;
    let restricted = labels(json!({"node-restriction.kubernetes.io/b": "", "x.node-restriction.kubernetes.io/a": ""}));
    let why = "is not allowed to modify labels: node-restriction.kubernetes.io/b, x.node-restriction.kubernetes.io/a";
    check(&world, "PATCH", "/api/v1/nodes/n1", restricted, why).await;
    let why = "is not allowed to modify labels: a.k8s.io/x";
    check(&world, "PATCH", "/api/v1/nodes/n1", labels(json!({"a.k8s.io/x": ""})), why).await;
    let taints = json!({"spec": {"taints": []}});
    check(&world, "PATCH", "/api/v1/nodes/n1", taints, "node \"n1\" is not allowed to modify taints").await;
    let owner =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "u"}]}});
    check(&world, "PATCH", "/api/v1/nodes/n1", owner, "node \"n1\" is not allowed to modify ownerReferences").await;
    check(&world, "PATCH", "/api/v1/nodes/n1/status", json!({"status": {"phase": "Running"}}), "").await;
    check(&world, "DELETE", "/api/v1/nodes/n1", Value::Null, "").await;
    let labelled = json!({"metadata": {"name": "n1", "labels": {"k8s.io/x": "y"}}});
    let why = "node \"n1\" is not allowed to set the following labels: k8s.io/x";
    check(&world, "POST", "/api/v1/nodes", labelled, why).await;
}

#[tokio::test]
async fn kubelets_write_their_own_pods_only() {
    let (world, node, mine) = world().await;
    let pods = "/api/v1/namespaces/default/pods";
    let status = json!({"status": {"phase": "Running"}});
    check(&world, "PATCH", &format!("{pods}/mine/status"), status.clone(), "").await;
    let why = "node \"n1\" can only update pod status for pods with spec.nodeName set to itself";
    check(&world, "PATCH", &format!("{pods}/theirs/status"), status, why).await;
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let why = "node \"n1\" cannot update labels through pod status";
    check(&world, "PATCH", &format!("{pods}/mine/status"), labelled.clone(), why).await;
    let why = "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods";
    check(&world, "PATCH", &format!("{pods}/mine"), labelled, why).await;
    let why = "node \"n1\" can only delete pods with spec.nodeName set to itself";
    check(&world, "DELETE", &format!("{pods}/theirs"), Value::Null, why).await;
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let why = "node n1 can only evict pods with spec.nodeName set to itself";
    check(&world, "POST", &format!("{pods}/theirs/eviction"), eviction("theirs"), why).await;
    let binding = json!({"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n1"}});
    let why = "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed";
    check(&world, "POST", &format!("{pods}/mine/binding"), binding, why).await;

    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": true});
    let mirror = |spec: Value, owners: Value| {
        let mut mirror = pod("m", json!({"nodeName": "n1", "automountServiceAccountToken": false}));
        crate::admission::world::merge(&mut mirror["spec"], spec);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror["metadata"]["ownerReferences"] = owners;
        mirror
    };
    let why = "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods";
    check(&world, "POST", pods, pod("m", json!({})), why).await;
    let why = "node \"n1\" can only create pods with spec.nodeName set to itself";
    check(&world, "POST", pods, mirror(json!({"nodeName": "n2"}), json!([owner])), why).await;
    let why = "node \"n1\" can only create pods with an owner reference set to itself";
    check(&world, "POST", pods, mirror(json!({}), json!([])), why).await;
    let mut free = owner.clone();
    free["controller"] = false.into();
    let why = "node \"n1\" can only create pods with a controller owner reference set to itself";
    check(&world, "POST", pods, mirror(json!({}), json!([free])), why).await;
    let why = "node \"n1\" can only create pods with a single owner reference set to itself";
    check(&world, "POST", pods, mirror(json!({}), json!([owner, free])), why).await;
    let map = json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}]});
    let why = "node \"n1\" can not create pods that reference configmaps";
    check(&world, "POST", pods, mirror(map, json!([owner])), why).await;
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "m"}}]});
    let why = "node \"n1\" can not create pods that reference persistentvolumeclaims";
    check(&world, "POST", pods, mirror(claim, json!([owner])), why).await;
    check(&world, "POST", pods, mirror(json!({}), json!([owner])), "").await;

    let token =
        |reference: Value, audiences: Value| json!({"spec": {"audiences": audiences, "boundObjectRef": reference}});
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    check(&world, "POST", tokens, token(Value::Null, json!([])), "node requested token not bound to a pod").await;
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "name": "mine"});
    let why = "node requested token with a pod binding without a uid";
    check(&world, "POST", tokens, token(bare.clone(), json!([])), why).await;
    let mut bound = bare;
    bound["uid"] = mine["metadata"]["uid"].clone();
    check(&world, "POST", tokens, token(bound.clone(), json!([])), "").await;
    let why = "node may only request 0 or 1 audiences";
    check(&world, "POST", tokens, token(bound.clone(), json!(["a", "b"])), why).await;
    bound["uid"] = "other".into();
    let why = "the UID in the bound object reference (other) does not match the UID in record. The object might have been deleted and \
               then recreated";
    check(&world, "POST", tokens, token(bound, json!([])), why).await;
    check(&world, "DELETE", &format!("{pods}/mine?gracePeriodSeconds=0"), Value::Null, "").await;
}

#[tokio::test]
async fn what_else_kubelets_write_is_named_after_their_node() {
    let (world, _, _) = world().await;
    let lease = |name: &str| json!({"metadata": {"name": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    check(&world, "POST", leases, lease("n1"), "").await;
    let why = "can only access node lease with the same name as the requesting node";
    check(&world, "POST", leases, lease("n2"), why).await;
    let why = "can only access leases in the \"kube-node-lease\" system namespace";
    check(&world, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease("n1"), why).await;
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    check(&world, "POST", "/apis/storage.k8s.io/v1/csinodes", csi("n1"), "").await;
    let why = "can only access CSINode with the same name as the requesting node";
    check(&world, "POST", "/apis/storage.k8s.io/v1/csinodes", csi("n2"), why).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    check(&world, "POST", claims, claim.clone(), "may only update PVC status").await;
    world.create(claims, claim).await;
    check(&world, "PATCH", &format!("{claims}/c/status"), json!({"status": {"capacity": {"storage": "1Gi"}}}), "")
        .await;
    check(&world, "POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "m"}}), "").await;
}
