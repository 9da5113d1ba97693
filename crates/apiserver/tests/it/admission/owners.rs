//! OwnerReferencesPermissionEnforcement: who makes an object go with another must be allowed to delete it, and who holds up
//! the other's deletion must be allowed to do that.

use serde_json::{Value, json};

use crate::admission::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NOT_DELETED: &str = "cannot set an ownerRef on a resource you can't delete: , <nil>";
const NOT_HELD: &str =
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
const UNKNOWN: &str = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion e.com/v1 Kind \
                       Boat: no matches for kind \"Boat\" in version \"e.com/v1\"";

fn owner(version: &str, kind: &str, name: &str, blocks: bool) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": name, "blockOwnerDeletion": blocks})
}

/// Users and what they may do, from the least to the most.
async fn world() -> World {
    let world = World::under_roles(&["OwnerReferencesPermissionEnforcement"]).await;
    let maps = |verbs: Value| json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
    let holds =
        |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["update"]});
    let writes = maps(json!(["create", "update", "patch", "get"]));
    let deletes = maps(json!(["delete"]));
    world.grant("writer", json!([writes])).await;
    world.grant("deleter", json!([writes, deletes])).await;
    world.grant("holder", json!([writes, deletes, holds("apps", "deployments/finalizers")])).await;
    world.grant("anything", json!([writes, deletes, holds("*", "*/finalizers")])).await;
    world.create(MAPS, json!({"metadata": {"name": "bare"}})).await;
    let owners = [owner("apps/v1", "Deployment", "d", true)];
    world.create(MAPS, json!({"metadata": {"name": "owned", "ownerReferences": owners}})).await;
    world
}

#[tokio::test]
async fn owners_need_rights() {
    let world = world().await;
    let deployment = |blocks| owner("apps/v1", "Deployment", "d", blocks);
    let (node, boat) = (owner("v1", "Node", "n", true), owner("e.com/v1", "Boat", "b", true));
    let other = owner("apps/v1", "Deployment", "e", true);
    let cases: Vec<(&str, &str, Vec<Value>, &str)> = vec![
        ("writer", "new", vec![], ""),
        ("writer", "new", vec![deployment(false)], ""),
        ("writer", "new", vec![deployment(true)], NOT_HELD),
        ("deleter", "new", vec![deployment(true)], NOT_HELD),
        ("holder", "new", vec![deployment(true)], ""),
        ("holder", "new", vec![deployment(true), owner("v1", "Node", "n", false)], ""),
        ("holder", "new", vec![deployment(true), node.clone()], NOT_HELD),
        ("holder", "new", vec![boat.clone()], UNKNOWN),
        ("anything", "new", vec![boat, node, deployment(true)], ""),
        ("writer", "bare", vec![], ""),
        ("writer", "bare", vec![deployment(false)], NOT_DELETED),
        ("deleter", "bare", vec![deployment(false)], ""),
        ("deleter", "bare", vec![deployment(true)], NOT_HELD),
        ("holder", "bare", vec![deployment(true)], ""),
        ("writer", "owned", vec![deployment(true)], ""),
        ("writer", "owned", vec![], NOT_DELETED),
        ("deleter", "owned", vec![deployment(false)], ""),
        ("deleter", "owned", vec![deployment(true), other.clone()], NOT_HELD),
        ("holder", "owned", vec![deployment(true), other], ""),
    ];
    for (user, name, owners, why) in cases {
        let body = json!({"metadata": {"name": name, "ownerReferences": owners, "labels": {"a": "b"}}});
        let (method, path) = match name {
            "new" => ("POST", format!("{MAPS}?dryRun=All")),
            name => ("PATCH", format!("{MAPS}/{name}?dryRun=All")),
        };
        let answer = world.send_as(user, &["system:authenticated"], method, &path, &body).await;
        let said = answer.body["message"].as_str().unwrap_or_default();
        let want = if why.is_empty() { String::new() } else { format!("configmaps {name:?} is forbidden: {why}") };
        assert_eq!((answer.code >= 300, said), (!why.is_empty(), want.as_str()), "{user} {name} {owners:?}");
    }
}
