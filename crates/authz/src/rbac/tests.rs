//! Compares decisions of the index with a naive evaluation of all rules.

use std::collections::BTreeMap;

use api::{Value, meta};
use apiserver_core::{attributes::ResourceAttributes, cache_index::Indexer, loopback::ObjectKey};
use serde_json::json;

use super::*;

/// All objects, by resource, namespace and name.
type ObjectMap = BTreeMap<(&'static str, String, String), Value>;

struct RandomObjects(fastrand::Rng);

impl RandomObjects {
    fn pick_one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(..of.len())]
    }

    /// Mostly some, rarely none.
    fn pick_some(&mut self, of: &[&'static str], at_most: usize) -> Vec<&'static str> {
        let many = if self.0.u8(..20) == 0 { 0 } else { self.0.usize(1..=at_most) };
        (0..many).map(|_| self.pick_one(of)).collect()
    }
}

const NAMESPACES: &[&str] = &["a", "b", "c", "d"];
const NAMES: &[&str] = &["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"];
const USERS: &[&str] = &["u0", "u1", "u2", "u3", "system:serviceaccount:a:u0", "system:serviceaccount:b:u1", "*"];
const GROUPS: &[&str] = &["g0", "g1", "g2", "g3", "*"];
const VERBS: &[&str] = &["get", "list", "create", "delete", "*"];
const API_GROUPS: &[&str] = &["", "apps", "batch", "*"];
const RESOURCES: &[&str] = &["pods", "jobs", "pods/log", "*/log", "*/scale", "jobs/scale", "*"];
const OBJECTS: &[&str] = &["x", "y", "z"];
const PATHS: &[&str] = &["/", "/healthz", "/apis/*", "/apis/x", "/logs/*", "*"];

fn random_role(random: &mut RandomObjects, cluster: bool) -> Value {
    let rules: Vec<Value> = (0..random.0.usize(1..4))
        .map(|_| match cluster && random.0.u8(..4) == 0 {
            true => json!({"verbs": random.pick_some(VERBS, 3), "nonResourceURLs": random.pick_some(PATHS, 2)}),
            false => json!({
                "verbs": random.pick_some(VERBS, 3), "apiGroups": random.pick_some(API_GROUPS, 3),
                "resources": random.pick_some(RESOURCES, 3),
                "resourceNames": if random.0.u8(..4) == 0 { random.pick_some(OBJECTS, 2) } else { Vec::new() },
            }),
        })
        .collect();
    json!({"rules": rules})
}

fn random_binding(random: &mut RandomObjects, cluster: bool) -> Value {
    let subjects: Vec<Value> = (0..random.0.usize(..4))
        .map(|_| match random.0.u8(..4) {
            0 => json!({"kind": "Group", "name": random.pick_one(GROUPS)}),
            1 => json!({"kind": "ServiceAccount", "name": random.pick_one(&["u0", "u1"]), "namespace": random.pick_one(&["a", "b", ""])}),
            2 => json!({"kind": random.pick_one(&["User", "Robot"]), "name": random.pick_one(USERS)}),
            _ => json!({"kind": "User", "name": random.pick_one(USERS)}),
        })
        .collect();
    let kind = if cluster { "ClusterRole" } else { random.pick_one(&["Role", "ClusterRole", "Rule"]) };
    json!({"subjects": subjects, "roleRef": {"kind": kind, "name": random.pick_one(NAMES)}})
}

/// Applies a random change to the objects and the index.
fn apply_random_change(random: &mut RandomObjects, world: &mut ObjectMap, index: &mut RbacIndex) {
    let name = super::RESOURCES[random.0.usize(..4)];
    let cluster = name.starts_with("cluster");
    let namespace = if cluster { "" } else { random.pick_one(NAMESPACES) };
    let place =
        ObjectKey { resource: schema().resource(GROUP, "v1", name).unwrap(), namespace, name: random.pick_one(NAMES) };
    let key = (name, namespace.to_owned(), place.name.to_owned());
    if random.0.u8(..5) == 0 {
        world.remove(&key);
        return index.remove_object(place);
    }
    let object =
        if name.ends_with("bindings") { random_binding(random, cluster) } else { random_role(random, cluster) };
    index.insert_object(place, &object);
    world.insert(key, object);
}

/// Evaluates every binding, subject and rule.
fn is_allowed_naively(world: &ObjectMap, user: &User, namespace: &str, request: &[&str]) -> bool {
    let texts = |value: &Value, field: &str| -> Vec<String> {
        meta::list_at(value, &[field]).iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let is = |subject: &Value, bound_in: &str| {
        let text = |field| meta::string_at(subject, &[field]);
        let own = if text("namespace").is_empty() { bound_in } else { text("namespace") };
        match text("kind") {
            "User" => text("name") == user.name,
            "Group" => user.groups.iter().any(|group| group == text("name")),
            "ServiceAccount" => !own.is_empty() && format!("system:serviceaccount:{own}:{}", text("name")) == user.name,
            _ => false,
        }
    };
    let allows = |rule: &Value| {
        let any = |field: &str, test: &dyn Fn(&str) -> bool| texts(rule, field).iter().any(|text| test(text));
        let verb = any("verbs", &|verb| verb == "*" || verb == request[0]);
        if let [_, path] = request {
            let matches = |rule: &str| match rule.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => rule == *path,
            };
            return verb && any("nonResourceURLs", &matches);
        }
        let [_, group, resource, subresource, name] = request else { panic!("{request:?}") };
        let whole = if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
        let sub = (!subresource.is_empty()).then(|| format!("*/{subresource}"));
        let names = texts(rule, "resourceNames");
        verb && any("apiGroups", &|one| one == "*" || one == *group)
            && any("resources", &|one| one == "*" || one == whole || Some(one) == sub.as_deref())
            && (names.is_empty() || names.iter().any(|one| one == name))
    };
    world.iter().any(|((resource, bound_in, _), binding)| {
        let applies = match *resource {
            "clusterrolebindings" => true,
            "rolebindings" => bound_in == namespace,
            _ => false,
        };
        if !applies || !meta::list_at(binding, &["subjects"]).iter().any(|subject| is(subject, bound_in)) {
            return false;
        }
        let name = meta::string_at(binding, &["roleRef", "name"]).to_owned();
        let role = match meta::string_at(binding, &["roleRef", "kind"]) {
            "ClusterRole" => ("clusterroles", String::new(), name),
            "Role" => ("roles", bound_in.clone(), name),
            _ => return false,
        };
        world.get(&role).is_some_and(|role| meta::list_at(role, &["rules"]).iter().any(allows))
    })
}

#[test]
fn index_agrees_with_naive_evaluation() {
    let mut random = RandomObjects(fastrand::Rng::with_seed(36));
    let (mut world, mut index) = (ObjectMap::new(), RbacIndex::default());
    (0..200).for_each(|_| apply_random_change(&mut random, &mut world, &mut index));
    let (mut yes, mut no) = (0, 0);
    for _ in 0..100_000 {
        if random.0.u8(..20) == 0 {
            apply_random_change(&mut random, &mut world, &mut index);
        }
        let groups = random.pick_some(GROUPS, 2).into_iter().map(str::to_owned).collect();
        let user = User { name: random.pick_one(USERS).to_owned(), groups, ..User::default() };
        let namespace = random.pick_one(&["", "a", "b", "c", "d", "e"]);
        let verb = random.pick_one(&["get", "list", "create", "delete", "watch"]);
        let words = match random.0.u8(..5) {
            0 => vec![verb, random.pick_one(&["/", "/healthz", "/apis/", "/apis/x", "/logs/y", "/x"])],
            _ => vec![
                verb,
                random.pick_one(&["", "apps", "extensions"]),
                random.pick_one(&["pods", "jobs", "nodes"]),
                random.pick_one(&["", "log", "scale"]),
                random.pick_one(&["", "x", "y"]),
            ],
        };
        let (request, namespace) = match words.as_slice() {
            [_, path] => (AttributesTarget::NonResource(path), ""),
            [_, group, resource, subresource, name] => (
                AttributesTarget::Resource(ResourceAttributes {
                    group,
                    resource,
                    subresource,
                    namespace,
                    name,
                    ..ResourceAttributes::default()
                }),
                namespace,
            ),
            _ => panic!("{words:?}"),
        };
        let got = decide_request(&index, &Attributes { user: &user, verb, target: request });
        let want = is_allowed_naively(&world, &user, namespace, &words);
        assert_eq!(got.is_allowed(), want, "{user:?} {namespace} {words:?}: {:?}", got.reason());
        *if want { &mut yes } else { &mut no } += 1;
    }
    assert!(yes > 10_000 && no > 10_000, "{yes} were allowed, {no} were not");
}

fn build_index(objects: &[(&'static str, &str, &str, Value)]) -> RbacIndex {
    let mut index = RbacIndex::default();
    for (resource, namespace, name, object) in objects {
        index.insert_object(
            ObjectKey { resource: schema().resource(GROUP, "v1", resource).unwrap(), namespace, name },
            object,
        );
    }
    index
}

fn assert_decision(user: &str, groups: &[&str], namespace: &str, want: Result<&str, &str>) {
    let get = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let bind = |kind: &str, role: &str, subjects: Value| json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects});
    let index = build_index(&[
        ("clusterroles", "", "reader", get.clone()),
        ("roles", "a", "reader", get.clone()),
        ("clusterrolebindings", "", "all", bind("ClusterRole", "reader", json!([{"kind": "User", "name": "root"}]))),
        ("clusterrolebindings", "", "lost", bind("ClusterRole", "gone", json!([{"kind": "User", "name": "lost"}]))),
        ("clusterrolebindings", "", "lost2", bind("ClusterRole", "away", json!([{"kind": "Group", "name": "lost"}]))),
        ("rolebindings", "a", "odd", bind("Thing", "x", json!([{"kind": "User", "name": "odd"}]))),
        ("rolebindings", "a", "own", bind("Role", "reader", json!([{"kind": "User", "name": "alice"}]))),
        ("rolebindings", "b", "lent", bind("ClusterRole", "reader", json!([{"kind": "User", "name": "alice"}]))),
        (
            "rolebindings",
            "b",
            "many",
            bind(
                "ClusterRole",
                "reader",
                json!([
                    {"kind": "ServiceAccount", "name": "robot"}, {"kind": "Group", "name": "devs"}, {"kind": "User", "name": "bob"},
                ]),
            ),
        ),
    ]);
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = User { name: user.into(), groups, ..User::default() };
    let request = AttributesTarget::Resource(ResourceAttributes {
        resource: "pods",
        namespace,
        name: "p",
        ..ResourceAttributes::default()
    });
    let decision = decide_request(&index, &Attributes { user: &user, verb: "get", target: request });
    let reason = decision.reason().to_string();
    let got = if decision.is_allowed() { Ok(reason.as_str()) } else { Err(reason.as_str()) };
    assert_eq!(got, want, "{user:?} in {namespace:?}");
}

#[test]
fn reasons_name_binding_role_and_subject() {
    assert_decision(
        "root",
        &[],
        "",
        Ok("RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"root\""),
    );
    assert_decision(
        "root",
        &[],
        "a",
        Ok("RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"root\""),
    );
    assert_decision(
        "alice",
        &[],
        "a",
        Ok("RBAC: allowed by RoleBinding \"own/a\" of Role \"reader\" to User \"alice\""),
    );
    assert_decision(
        "alice",
        &[],
        "b",
        Ok("RBAC: allowed by RoleBinding \"lent/b\" of ClusterRole \"reader\" to User \"alice\""),
    );
    assert_decision("alice", &[], "c", Err(""));
    assert_decision("alice", &[], "", Err(""));
    assert_decision(
        "bob",
        &[],
        "b",
        Ok("RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to User \"bob\""),
    );
    let devs = "RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to Group \"devs\"";
    assert_decision("eve", &["x", "devs"], "b", Ok(devs));
    assert_decision("bob", &["devs"], "b", Ok(devs));
    assert_decision(
        "system:serviceaccount:b:robot",
        &[],
        "b",
        Ok("RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to ServiceAccount \"robot/b\""),
    );
    assert_decision("system:serviceaccount:a:robot", &[], "b", Err(""));
    assert_decision("lost", &[], "", Err("RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"));
    assert_decision(
        "lost",
        &["lost"],
        "",
        Err("RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, clusterrole.rbac.authorization.k8s.io \
             \"away\" not found]"),
    );
    assert_decision("odd", &[], "a", Err("RBAC: unsupported role reference kind: \"Thing\""));
}
