//! Apply through its boundary: writes in a row, and what the object and its owners are after them.

use serde_json::json;

use super::*;
use crate::{
    Map,
    schema::{Resource, schema},
};

/// An operation of one field manager.
#[derive(Clone, Debug)]
enum Write {
    /// Creates or replaces the object.
    Put(&'static str, Value),
    /// Replaces the status.
    Status(&'static str, Value),
    /// Applies a configuration.
    Apply(&'static str, Value),
    /// Applies a configuration, whoever owns the fields.
    Force(&'static str, Value),
}
use Write::{Apply, Force, Put, Status};

fn resource(name: &str) -> &'static Resource {
    let (name, version) = name.split_once('/').unwrap_or((name, "v1"));
    schema().resources().iter().find(|r| r.name == name && r.version == version).unwrap()
}

/// One write; the object gets an identity as a server would give it.
fn perform_write(resource: &Resource, live: Option<&Value>, write: &Write, now: &str) -> Result<Value, ApplyError> {
    let (manager, given, subresource) = match write {
        Put(manager, value) | Apply(manager, value) | Force(manager, value) => (manager, value, ""),
        Status(manager, value) => (manager, value, "status"),
    };
    let mut value = given.clone();
    value["apiVersion"] = resource.api_version().into();
    value["kind"] = resource.kind.into();
    let writer = ApplyRequest { target: ApplyTarget::for_resource(resource, subresource), manager, now };
    let mut object = match write {
        Apply(..) => apply_config(&writer, live, &value, false)?,
        Force(..) => apply_config(&writer, live, &value, true)?,
        Put(..) | Status(..) => {
            let mut object = canonicalize_result(&writer.target, value)?;
            track_update(&writer, live, &mut object);
            object
        }
    };
    meta::metadata_mut(&mut object).insert("uid".into(), "u".into());
    Ok(object)
}

/// Does the writes in order, a second each, and returns the object and its owners as `manager: paths`. Only the last write
/// may fail.
fn check(name: &str, writes: &[Write]) -> Result<(Value, Vec<String>), ApplyError> {
    let mut live: Option<Value> = None;
    for (at, write) in writes.iter().enumerate() {
        let done = perform_write(resource(name), live.as_ref(), write, &format!("2026-01-01T00:00:{at:02}Z"));
        live = Some(if at + 1 == writes.len() { done? } else { done.unwrap() });
    }
    let object = live.unwrap();
    let text = |entry: &ManagedFieldsEntry| {
        let paths: Vec<String> = entry.fields.paths().iter().map(|path| managed_fields::format_path(path)).collect();
        format!("{}: {}", entry.manager, paths.join(" "))
    };
    let owners = ManagedFields::from_object(&object).unwrap().entries.iter().map(text).collect();
    Ok((object, owners))
}

fn managers_after(name: &str, writes: &[Write]) -> Vec<String> {
    check(name, writes).unwrap().1
}

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "m"}, "data": data})
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

#[test]
fn update_owns_changed_fields() {
    let created = Put("a", json!({"metadata": {"labels": {"x": "1"}}, "data": {"k": "v", "l": "v"}}));
    assert_eq!(
        managers_after("configmaps", std::slice::from_ref(&created)),
        ["a: .data .data.k .data.l .metadata.labels .metadata.labels.x"]
    );
    let changed = Put("b", json!({"metadata": {"labels": {"x": "1"}}, "data": {"k": "w"}}));
    assert_eq!(
        managers_after("configmaps", &[created.clone(), changed]),
        ["a: .data .metadata.labels .metadata.labels.x", "b: .data.k"]
    );
    let (object, _) = check("configmaps", &[created.clone(), created]).unwrap();
    let times = &object["metadata"]["managedFields"];
    assert_eq!(times[0]["time"], "2026-01-01T00:00:00Z", "nothing changed, nothing is newer");
}

#[test]
fn status_update_owns_status_only() {
    let spec = json!({"spec": {"minReadySeconds": 3}, "status": {"replicas": 1}});
    let status = json!({"spec": {"minReadySeconds": 4}, "status": {"replicas": 2}});
    let all = managers_after("replicasets", &[Put("a", spec), Status("b", status)]);
    assert!(all[0].starts_with("a: .spec.minReadySeconds .spec.replicas ") && !all[0].contains("status"), "{all:?}");
    assert_eq!(all[1], "b: .status.replicas");
}

#[test]
fn abandoned_applied_fields_are_removed() {
    let (object, all) =
        check("configmaps", &[Apply("a", map(json!({"k": "v", "l": "v"}))), Apply("a", map(json!({"k": "v"})))])
            .unwrap();
    assert_eq!((&object["data"], all), (&json!({"k": "v"}), vec!["a: .data.k".to_owned()]));
    let shared = [
        Apply("a", map(json!({"k": "v", "l": "v"}))),
        Apply("b", map(json!({"l": "v"}))),
        Apply("a", map(json!({"k": "v"}))),
    ];
    let (object, all) = check("configmaps", &shared).unwrap();
    assert_eq!(object["data"], json!({"k": "v", "l": "v"}), "somebody else still wants it");
    assert_eq!(all, ["b: .data.l", "a: .data.k"], "who applied last is last, and b changed nothing, so has no time");
    let updated = [
        Put("u", map(json!({"k": "v", "l": "v"}))),
        Apply("a", map(json!({"k": "v"}))),
        Apply("a", json!({"metadata": {"name": "m"}})),
    ];
    let (object, all) = check("configmaps", &updated).unwrap();
    assert_eq!(object["data"], json!({"k": "v", "l": "v"}), "updaters own it too");
    assert_eq!(all, ["u: .data .data.k .data.l"]);
}

#[test]
fn fields_of_other_managers_conflict() {
    let first = Put("u", map(json!({"k": "v", "l": "v"})));
    let error = check("configmaps", &[first.clone(), Apply("a", map(json!({"k": "w"})))]).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.k");
    let status = error.to_status();
    assert_eq!((status.code, status.reason), (409, "Conflict"));
    assert_eq!(
        status.details,
        Some(
            json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"u\" using v1", "field": ".data.k"}]})
        )
    );
    let both = [first.clone(), Apply("a", map(json!({"l": "v"}))), Apply("b", map(json!({"k": "w", "l": "w"})))];
    assert_eq!(
        check("configmaps", &both).unwrap_err().to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .data.l\nconflicts with \"u\" using v1:\n- .data.k\n- .data.l"
    );
    assert_eq!(
        managers_after("configmaps", &[first, Force("a", map(json!({"k": "w"})))]),
        ["a: .data.k", "u: .data .data.l"]
    );
}

#[test]
fn lists_are_merged_by_list_type() {
    let first = Apply(
        "a",
        pod(json!([{"name": "x", "image": "1", "ports": [{"containerPort": 80}]}, {"name": "y", "image": "1"}])),
    );
    let other =
        json!([{"name": "z", "image": "1"}, {"name": "x", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]);
    let (object, all) = check("pods", &[first.clone(), Apply("b", pod(other))]).unwrap();
    let names: Vec<&str> =
        meta::list_at(&object, &["spec", "containers"]).iter().map(|c| meta::string_at(c, &["name"])).collect();
    assert_eq!(names, ["z", "x", "y"], "shared ones in the order of who applies, others where they were");
    assert_eq!(object["spec"]["containers"][1]["ports"].as_array().unwrap().len(), 2);
    assert!(
        all[0].contains(r#".spec.containers[name="x"].ports[containerPort=80,protocol="TCP"].containerPort"#),
        "{all:?}"
    );
    let set = |finalizers: Value| json!({"metadata": {"name": "m", "finalizers": finalizers}});
    let (object, all) = check(
        "configmaps",
        &[
            Apply("a", set(json!(["x/1", "x/2"]))),
            Apply("b", set(json!(["x/2", "x/3"]))),
            Apply("a", set(json!(["x/1"]))),
        ],
    )
    .unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["x/1", "x/2", "x/3"]));
    assert_eq!(
        all,
        [r#"a: .metadata.finalizers[="x/1"]"#, r#"b: .metadata.finalizers[="x/2"] .metadata.finalizers[="x/3"]"#]
    );
    let args = |args: Value| pod(json!([{"name": "x", "image": "1", "args": args}]));
    let error = check("pods", &[Apply("a", args(json!(["1"]))), Apply("b", args(json!(["1", "2"])))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.containers[name="x"].args"#
    );
    let selector = |key: &str| json!({"spec": {"selector": {"matchLabels": {key: "1"}}}});
    let error = check("deployments", &[Apply("a", selector("x")), Apply("b", selector("y"))]).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.selector"#);
    let data = |data: Value| json!({"revision": 1, "data": data});
    assert_eq!(
        managers_after("controllerrevisions", &[Apply("a", data(json!({"x": {"y": 1}})))]),
        ["a: .data .revision"]
    );
}

#[test]
fn schema_mismatch_is_rejected() {
    let refused = |name, value| check(name, &[Apply("a", value)]).unwrap_err().to_string();
    let head = "failed to create typed patch object (/p; v1, Kind=Pod): ";
    let twice = pod(json!([{"name": "x"}, {"name": "x"}]));
    assert_eq!(refused("pods", twice), format!(r#"{head}.spec.containers: duplicate entries for key [name="x"]"#));
    let unknown = pod(json!([{"name": "x", "imagee": "1"}]));
    assert_eq!(
        refused("pods", unknown),
        format!(r#"{head}.spec.containers[name="x"].imagee: field not declared in schema"#)
    );
    let wrong = json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": "yes", "priority": "1"}});
    assert!(refused("pods", wrong).contains(".spec.priority: expected numeric (int or float), got string"));
    assert_eq!(refused("pods", json!({"metadata": {"managedFields": [{}]}})), "metadata.managedFields must be nil");
    let writer = ApplyRequest { target: ApplyTarget::for_resource(resource("pods"), ""), manager: "a", now: "" };
    let other = apply_config(&writer, None, &json!({"apiVersion": "v1", "kind": "Node"}), false).unwrap_err();
    assert_eq!((other.to_string().as_str(), other.to_status().code), ("invalid object type: /v1, Kind=Node", 400));
}

#[test]
fn clients_may_set_or_reset_managed_fields() {
    let given = |owners: Value| json!({"metadata": {"managedFields": owners}, "data": {"k": "v", "l": "w"}});
    let first = Put("a", map(json!({"k": "v"})));
    for reset in [json!([]), json!([{}])] {
        assert!(managers_after("configmaps", &[first.clone(), Put("b", given(reset))]).is_empty());
    }
    let entry = json!({"manager": "c", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}});
    assert_eq!(
        managers_after("configmaps", &[first.clone(), Put("b", given(json!([entry])))]),
        ["c: .data.k", "b: .data.l"]
    );
    let broken = json!([{"manager": "c", "operation": "Nope"}]);
    assert_eq!(
        managers_after("configmaps", &[first.clone(), Put("b", given(broken))]),
        ["a: .data .data.k", "b: .data.l"]
    );
    let forgotten = [first, Put("b", given(json!([]))), Apply("c", map(json!({"k": "v"})))];
    assert_eq!(managers_after("configmaps", &forgotten)[1], "before-first-apply: .data .data.k .data.l");
}

#[test]
fn old_update_managers_are_merged() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let mut data = Map::new();
    let writes: Vec<Write> = names
        .iter()
        .map(|name| {
            data.insert((*name).to_owned(), "1".into());
            Put(name, map(Value::Object(data.clone())))
        })
        .collect();
    let all = managers_after("configmaps", &writes);
    assert_eq!(all.len(), 10);
    assert_eq!(all[0], "ancient-changes: .data .data.a .data.b .data.c");
    assert_eq!(all[9], "l: .data.l");
}

#[test]
fn last_applied_annotation_prevents_conflicts() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}).to_string();
    let first = Put(
        "kubectl-client-side-apply",
        json!({"metadata": {"name": "m", "annotations": {annotation: applied}}, "data": {"k": "v", "l": "v"}}),
    );
    let (object, _) = check("configmaps", &[first.clone(), Apply("kubectl", map(json!({"k": "w"})))]).unwrap();
    assert_eq!(object["data"]["k"], "w");
    let now = meta::string_at(&object, &["metadata", "annotations", annotation]);
    assert_eq!(serde_json::from_str::<Value>(now).unwrap()["data"]["k"], "w");
    check("configmaps", &[first.clone(), Apply("kubectl", map(json!({"l": "w"})))]).unwrap_err();
    check("configmaps", &[first, Apply("other", map(json!({"k": "w"})))]).unwrap_err();
}

#[test]
fn managers_of_other_versions_keep_their_fields() {
    let (v1, v2) = (resource("horizontalpodautoscalers/v1"), resource("horizontalpodautoscalers/v2"));
    let given = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "D", "name": "x"}, "targetCPUUtilizationPercentage": 50}});
    let first = perform_write(v1, None, &Apply("a", given), "2026-01-01T00:00:00Z").unwrap();
    let live = crate::convert::convert_to(v2, first);
    let next = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 4}});
    let error = perform_write(v2, Some(&live), &Apply("b", next.clone()), "").unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .spec.maxReplicas");
    let forced = perform_write(v2, Some(&live), &Force("b", next), "2026-01-01T00:00:01Z").unwrap();
    let entries = ManagedFields::from_object(&forced).unwrap().entries;
    let versions: Vec<&str> = entries.iter().map(|entry| entry.api_version.as_str()).collect();
    assert_eq!(versions, ["autoscaling/v1", "autoscaling/v2"]);
    let gone = |fields: Value| {
        let mut object = forced.clone();
        object["metadata"]["managedFields"] = json!([{"manager": "o", "operation": "Update", "apiVersion": "autoscaling/v0", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
        object
    };
    let mut changed = gone(json!({"f:spec": {"f:maxReplicas": {}}}));
    changed["spec"]["maxReplicas"] = 9.into();
    let writer = ApplyRequest { target: ApplyTarget::for_resource(v2, ""), manager: "c", now: "" };
    track_update(&writer, Some(&forced), &mut changed);
    assert_eq!(
        changed["metadata"]["managedFields"].as_array().unwrap().len(),
        1,
        "owners in unknown versions are dropped"
    );
}

#[test]
fn field_sets_round_trip() {
    let text = json!({"f:a": {".": {}, "f:b": {}}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:x": {}}, "v:\"\\u003cx\\u003e\"": {}, "i:3": {}});
    let set = FieldSet::from_value(&text).unwrap();
    assert_eq!(set.to_value(), text);
    let paths: Vec<String> = set.paths().iter().map(|path| managed_fields::format_path(path)).collect();
    assert_eq!(paths, [".a", r#"[="<x>"]"#, "[3]", ".a.b", r#"[containerPort=80,protocol="TCP"].x"#]);
    assert_eq!(
        FieldSet::from_value(&json!({"z:1": {}, "f:a": {}})).unwrap(),
        FieldSet::from_paths(&["a"]),
        "unknown kinds are ignored"
    );
    for wrong in
        [json!({"f": {}}), json!({"fa": {}}), json!({"k:1": {}}), json!({"i:x": {}}), json!({"f:a": 1}), json!([])]
    {
        FieldSet::from_value(&wrong).unwrap_err();
    }
}

#[test]
fn field_set_union_and_difference() {
    let (a, b) = (FieldSet::from_paths(&["x", "x.y", "z.q"]), FieldSet::from_paths(&["x", "z.q", "z.r"]));
    assert_eq!(a.clone().union(b.clone()), FieldSet::from_paths(&["x", "x.y", "z.q", "z.r"]));
    assert_eq!(a.intersection(&b), FieldSet::from_paths(&["x", "z.q"]));
    assert_eq!(a.clone().difference(&b), FieldSet::from_paths(&["x.y"]));
    assert_eq!(a.clone().recursive_difference(&b), FieldSet::default());
    assert!(
        FieldSet::from_paths(&["x", "z.q"]).is_subset(&a)
            && !a.is_subset(&b)
            && !FieldSet::from_paths(&["z"]).is_subset(&a)
    );
}

#[test]
fn newly_atomic_fields_are_owned_as_a_whole() {
    let view = type_view::TypeView::for_object(resource("deployments").ty);
    let mut set = FieldSet::from_paths(&["spec.selector.matchLabels.x", "spec.replicas"]);
    object_fields::reconcile_with_schema(view, &mut set);
    assert_eq!(set, FieldSet::from_paths(&["spec.selector", "spec.replicas"]));
}

/// Values of any shape, of which many are almost right.
fn arbitrary_value(random: &mut fastrand::Rng, depth: usize) -> Value {
    const KEYS: [&str; 24] = [
        "metadata",
        "spec",
        "status",
        "containers",
        "name",
        "ports",
        "containerPort",
        "protocol",
        "labels",
        "a",
        "finalizers",
        "managedFields",
        "f:spec",
        "k:{\"name\":\"a\"}",
        "v:1",
        "i:0",
        ".",
        "template",
        "selector",
        "volumes",
        "conditions",
        "type",
        "annotations",
        "env",
    ];
    match random.usize(0..if depth > 5 { 5 } else { 9 }) {
        0 => Value::Null,
        1 => random.i64(-3..3).into(),
        2 => random.bool().into(),
        3 | 4 => KEYS[random.usize(..KEYS.len())].into(),
        5 | 6 => (0..random.usize(0..4)).map(|_| arbitrary_value(random, depth + 1)).collect(),
        _ => {
            let key = |random: &mut fastrand::Rng| KEYS[random.usize(..KEYS.len())].to_owned();
            (0..random.usize(0..5)).map(|_| (key(random), arbitrary_value(random, depth + 1))).collect::<Map>().into()
        }
    }
}

#[test]
fn arbitrary_input_never_panics() {
    let mut random = fastrand::Rng::with_seed(7);
    let live = check("pods", &[Put("u", pod(json!([{"name": "a", "image": "1", "ports": [{"containerPort": 1}]}])))])
        .unwrap()
        .0;
    let resource = resource("pods");
    for _ in 0..4_000 {
        let mut config = arbitrary_value(&mut random, 0);
        let _ = FieldSet::from_value(&config);
        if config.is_object() {
            let _ = perform_write(resource, Some(&live), &Force("a", config.clone()), "");
            config["metadata"] = json!({"managedFields": arbitrary_value(&mut random, 0)});
            let mut given = live.clone();
            given["metadata"]["managedFields"] = config["metadata"]["managedFields"].clone();
            track_update(
                &ApplyRequest { target: ApplyTarget::for_resource(resource, ""), manager: "a", now: "" },
                Some(&live),
                &mut given,
            );
            let _ = perform_write(resource, Some(&given), &Apply("a", json!({"metadata": {"labels": {"x": "1"}}})), "");
        }
    }
}

/// A part of an object: some of its fields, and items of lists whole.
fn random_part(random: &mut fastrand::Rng, value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|_| random.u8(..4) > 0).map(|(k, v)| (k.clone(), v.clone())).collect::<Map>().into()
        }
        other => other.clone(),
    }
}

#[test]
fn repeated_apply_changes_nothing() {
    let mut random = fastrand::Rng::with_seed(11);
    let whole = json!({"metadata": {"name": "d", "labels": {"a": "1", "b": "2"}, "finalizers": ["x/1", "x/2"]}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"a": "1"}}, "strategy": {"type": "RollingUpdate"},
        "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [
            {"name": "x", "image": "1", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}], "env": [{"name": "E", "value": "1"}]},
            {"name": "y", "image": "1", "resources": {"limits": {"cpu": "1"}}, "args": ["a"]}],
            "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k"}]}}}});
    let deployments = resource("deployments");
    for _ in 0..100 {
        let mut live: Option<Value> = None;
        for step in 0..4 {
            let manager = ["a", "b"][random.usize(..2)];
            let mut config = json!({"metadata": random_part(&mut random, &whole["metadata"]), "spec": random_part(&mut random, &whole["spec"])});
            if random.bool() {
                config["metadata"]["labels"] = json!({"a": step.to_string()});
            }
            config["metadata"]["name"] = "d".into();
            let once =
                perform_write(deployments, live.as_ref(), &Force(manager, config.clone()), "2026-01-01T00:00:01Z")
                    .unwrap();
            let twice =
                perform_write(deployments, Some(&once), &Apply(manager, config), "2026-01-01T00:00:02Z").unwrap();
            assert_eq!(once, twice);
            live = Some(once);
        }
    }
}
