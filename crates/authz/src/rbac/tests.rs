//! Compares decisions of the index with a naive evaluation of all rules.

use std::collections::BTreeMap;

use api::{Value, meta};
use apiserver_core::{attributes::ResourceAttributes, cache_index::Indexer, loopback::ObjectKey};
use serde_json::json;

use super::*;

/// All objects, by resource, namespace and name.
type World = BTreeMap<(&'static str, String, String), Value>;

struct Random(fastrand::Rng);

impl Random {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(..of.len())]
    }

    /// Mostly some, rarely none.
    fn some(&mut self, of: &[&'static str], at_most: usize) -> Vec<&'static str> {
        let many = if self.0.u8(..20) == 0 { 0 } else { self.0.usize(1..=at_most) };
        (0..many).map(|_| self.one(of)).collect()
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

fn role(random: &mut Random, cluster: bool) -> Value {
    let rules: Vec<Value> = (0..random.0.usize(1..4))
        .map(|_| match cluster && random.0.u8(..4) == 0 {
            true => json!({"verbs": random.some(VERBS, 3), "nonResourceURLs": random.some(PATHS, 2)}),
            false => json!({
                "verbs": random.some(VERBS, 3), "apiGroups": random.some(API_GROUPS, 3),
                "resources": random.some(RESOURCES, 3),
                "resourceNames": if random.0.u8(..4) == 0 { random.some(OBJECTS, 2) } else { Vec::new() },
            }),
        })
        .collect();
    json!({"rules": rules})
}

fn binding(random: &mut Random, cluster: bool) -> Value {
    let subjects: Vec<Value> = (0..random.0.usize(..4))
        .map(|_| match random.0.u8(..4) {
            0 => json!({"kind": "Group", "name": random.one(GROUPS)}),
            1 => json!({"kind": "ServiceAccount", "name": random.one(&["u0", "u1"]), "namespace": random.one(&["a", "b", ""])}),
            2 => json!({"kind": random.one(&["User", "Robot"]), "name": random.one(USERS)}),
            _ => json!({"kind": "User", "name": random.one(USERS)}),
        })
        .collect();
    let kind = if cluster { "ClusterRole" } else { random.one(&["Role", "ClusterRole", "Rule"]) };
    json!({"subjects": subjects, "roleRef": {"kind": kind, "name": random.one(NAMES)}})
}

/// Applies a random change to the objects and the index.
fn change(random: &mut Random, world: &mut World, index: &mut RbacIndex) {
    let name = super::RESOURCES[random.0.usize(..4)];
    let cluster = name.starts_with("cluster");
    let namespace = if cluster { "" } else { random.one(NAMESPACES) };
    let place =
        ObjectKey { resource: schema().resource(GROUP, "v1", name).unwrap(), namespace, name: random.one(NAMES) };
    let key = (name, namespace.to_owned(), place.name.to_owned());
    if random.0.u8(..5) == 0 {
        world.remove(&key);
        return index.remove_object(place);
    }
    let object = if name.ends_with("bindings") { binding(random, cluster) } else { role(random, cluster) };
    index.insert_object(place, &object);
    world.insert(key, object);
}

/// Evaluates every binding, subject and rule.
fn allowed(world: &World, user: &User, namespace: &str, asked: &[&str]) -> bool {
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
        let verb = any("verbs", &|verb| verb == "*" || verb == asked[0]);
        if let [_, path] = asked {
            let matches = |rule: &str| match rule.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => rule == *path,
            };
            return verb && any("nonResourceURLs", &matches);
        }
        let [_, group, resource, subresource, name] = asked else { panic!("{asked:?}") };
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
    let mut random = Random(fastrand::Rng::with_seed(36));
    let (mut world, mut index) = (World::new(), RbacIndex::default());
    (0..200).for_each(|_| change(&mut random, &mut world, &mut index));
    let (mut yes, mut no) = (0, 0);
    for _ in 0..100_000 {
        if random.0.u8(..20) == 0 {
            change(&mut random, &mut world, &mut index);
        }
        let groups = random.some(GROUPS, 2).into_iter().map(str::to_owned).collect();
        let user = User { name: random.one(USERS).to_owned(), groups, ..User::default() };
        let namespace = random.one(&["", "a", "b", "c", "d", "e"]);
        let verb = random.one(&["get", "list", "create", "delete", "watch"]);
        let words = match random.0.u8(..5) {
            0 => vec![verb, random.one(&["/", "/healthz", "/apis/", "/apis/x", "/logs/y", "/x"])],
            _ => vec![
                verb,
                random.one(&["", "apps", "extensions"]),
                random.one(&["pods", "jobs", "nodes"]),
                random.one(&["", "log", "scale"]),
                random.one(&["", "x", "y"]),
            ],
        };
        let (asked, namespace) = match words.as_slice() {
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
        let got = decide(&index, &Attributes { user: &user, verb, target: asked });
        let want = allowed(&world, &user, namespace, &words);
        assert_eq!(got.is_allowed(), want, "{user:?} {namespace} {words:?}: {:?}", got.reason());
        *if want { &mut yes } else { &mut no } += 1;
    }
    assert!(yes > 10_000 && no > 10_000, "{yes} were allowed, {no} were not");
}

fn index_of(objects: &[(&'static str, &str, &str, Value)]) -> RbacIndex {
    let mut index = RbacIndex::default();
    for (resource, namespace, name, object) in objects {
        index.insert_object(
            ObjectKey { resource: schema().resource(GROUP, "v1", resource).unwrap(), namespace, name },
            object,
        );
    }
    index
}

fn check(user: &str, groups: &[&str], namespace: &str, want: Result<&str, &str>) {
    let get = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let bind = |kind: &str, role: &str, subjects: Value| json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects});
    let index = index_of(&[
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
    let asked = AttributesTarget::Resource(ResourceAttributes {
        resource: "pods",
        namespace,
        name: "p",
        ..ResourceAttributes::default()
    });
    let decision = decide(&index, &Attributes { user: &user, verb: "get", target: asked });
    let reason = decision.reason().to_string();
    let got = if decision.is_allowed() { Ok(reason.as_str()) } else { Err(reason.as_str()) };
    assert_eq!(got, want, "{user:?} in {namespace:?}");
}

#[test]
fn reasons_name_binding_role_and_subject() {
    check(
        "root",
        &[],
        "",
        Ok("RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"root\""),
    );
    check(
        "root",
        &[],
        "a",
        Ok("RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"root\""),
    );
    check("alice", &[], "a", Ok("RBAC: allowed by RoleBinding \"own/a\" of Role \"reader\" to User \"alice\""));
    check("alice", &[], "b", Ok("RBAC: allowed by RoleBinding \"lent/b\" of ClusterRole \"reader\" to User \"alice\""));
    check("alice", &[], "c", Err(""));
    check("alice", &[], "", Err(""));
    check("bob", &[], "b", Ok("RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to User \"bob\""));
    let devs = "RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to Group \"devs\"";
    check("eve", &["x", "devs"], "b", Ok(devs));
    check("bob", &["devs"], "b", Ok(devs));
    check(
        "system:serviceaccount:b:robot",
        &[],
        "b",
        Ok("RBAC: allowed by RoleBinding \"many/b\" of ClusterRole \"reader\" to ServiceAccount \"robot/b\""),
    );
    check("system:serviceaccount:a:robot", &[], "b", Err(""));
    check("lost", &[], "", Err("RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"));
    check(
        "lost",
        &["lost"],
        "",
        Err("RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, clusterrole.rbac.authorization.k8s.io \
             \"away\" not found]"),
    );
    check("odd", &[], "a", Err("RBAC: unsupported role reference kind: \"Thing\""));
}
