//! Roles and bindings, so that what applies to somebody is found by name and nothing else is looked at.

use std::{collections::HashMap, fmt, sync::Arc};

use api::{Value, meta};
use apiserver_core::{User, cache_index::Indexer, loopback::ObjectKey};

use super::rule::Rule;

/// What names of users of service accounts begin with.
const ACCOUNT: &str = "system:serviceaccount:";

/// All roles and bindings. The scope of the whole cluster is the namespace "".
#[derive(Default)]
pub struct Index {
    scopes: HashMap<Box<str>, Scope>,
}

/// The roles and bindings of one namespace. Rules of cluster roles are found in the cluster's scope.
#[derive(Default)]
struct Scope {
    roles: HashMap<Box<str>, Arc<[Rule]>>,
    bindings: HashMap<Box<str>, Arc<Binding>>,
    /// Who is bound, by the name of the user; service accounts are users.
    users: HashMap<Box<str>, Vec<Grant>>,
    groups: HashMap<Box<str>, Vec<Grant>>,
}

/// A binding as it is written.
#[derive(Debug, PartialEq, Eq)]
pub struct Binding {
    /// Empty for the whole cluster.
    namespace: Box<str>,
    name: Box<str>,
    /// What it binds.
    pub role: RoleRef,
    subjects: Vec<Subject>,
}

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: Box<str>,
    /// The role's name.
    pub name: Box<str>,
}

#[derive(Debug, PartialEq, Eq)]
struct Subject {
    kind: Box<str>,
    name: Box<str>,
    /// Of a service account; that of the binding where none is given.
    namespace: Box<str>,
}

/// That a binding names somebody.
#[derive(Clone, Debug)]
pub struct Grant {
    binding: Arc<Binding>,
    /// The place of the subject in the binding.
    subject: usize,
}

/// Why rules of a role could not be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no such role.
    Role(RoleRef),
    /// References are to roles and cluster roles.
    Kind(Box<str>),
}

impl Index {
    /// Goes through all that apply to `user` in `namespace`, cluster roles first, until `visit` says that it is enough.
    pub fn visit<'a>(
        &'a self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(&'a Grant, Result<&'a [Rule], Missing>) -> bool,
    ) {
        let namespaces = if namespace.is_empty() { [Some(""), None] } else { [Some(""), Some(namespace)] };
        for scope in namespaces.into_iter().flatten().filter_map(|namespace| self.scopes.get(namespace)) {
            let by_group = user.groups.iter().filter_map(|group| scope.groups.get(group.as_str()));
            for grant in scope.users.get(user.name.as_str()).into_iter().chain(by_group).flatten() {
                if visit(grant, self.rules(&grant.binding.role, &grant.binding.namespace)) {
                    return;
                }
            }
        }
    }

    /// The rules of a role that a binding in `namespace` refers to.
    pub fn rules(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], Missing> {
        let scope = match &*role.kind {
            "ClusterRole" => "",
            "Role" if !namespace.is_empty() => namespace,
            "Role" => return Err(Missing::Role(role.clone())),
            _ => return Err(Missing::Kind(role.kind.clone())),
        };
        let found = self.scopes.get(scope).and_then(|scope| scope.roles.get(&role.name));
        found.map(|rules| &**rules).ok_or_else(|| Missing::Role(role.clone()))
    }
}

impl Indexer for Index {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let scope = match self.scopes.get_mut(place.namespace) {
            Some(scope) => scope,
            None => self.scopes.entry(place.namespace.into()).or_default(),
        };
        if is_role(place) {
            scope.roles.insert(place.name.into(), Rule::all_of(object).into());
        } else {
            scope.bind(Binding::of(place, object));
        }
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        let Some(scope) = self.scopes.get_mut(place.namespace) else { return };
        if is_role(place) {
            scope.roles.remove(place.name);
        } else {
            scope.unbind(place.name);
        }
        if scope.roles.is_empty() && scope.bindings.is_empty() {
            self.scopes.remove(place.namespace);
        }
    }

    fn clear(&mut self) {
        self.scopes.clear();
    }
}

fn is_role(place: ObjectKey<'_>) -> bool {
    matches!(place.resource.kind, "Role" | "ClusterRole")
}

impl Scope {
    fn bind(&mut self, binding: Binding) {
        self.unbind(&binding.name);
        let binding = Arc::new(binding);
        for (at, subject) in binding.subjects.iter().enumerate() {
            let Some((user, name)) = subject.identity() else { continue };
            let grants = if user { &mut self.users } else { &mut self.groups }.entry(name).or_default();
            // In the order of their names, so that a decision has the same reason every time.
            let place = grants.partition_point(|grant| grant.binding.name < binding.name);
            // Somebody who is named twice is bound once.
            if grants.get(place).is_none_or(|there| !Arc::ptr_eq(&there.binding, &binding)) {
                grants.insert(place, Grant { binding: binding.clone(), subject: at });
            }
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn unbind(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((user, name)) = subject.identity() else { continue };
            let all = if user { &mut self.users } else { &mut self.groups };
            let Some(grants) = all.get_mut(&name) else { continue };
            grants.retain(|grant| !Arc::ptr_eq(&grant.binding, &binding));
            if grants.is_empty() {
                all.remove(&name);
            }
        }
    }
}

impl Binding {
    fn of(place: ObjectKey<'_>, object: &Value) -> Self {
        let subject = |subject: &Value| {
            let namespace = match meta::string_at(subject, &["namespace"]) {
                "" => place.namespace,
                namespace => namespace,
            };
            Subject {
                kind: meta::string_at(subject, &["kind"]).into(),
                name: meta::string_at(subject, &["name"]).into(),
                namespace: namespace.into(),
            }
        };
        Self {
            namespace: place.namespace.into(),
            name: place.name.into(),
            role: RoleRef::of(object),
            subjects: meta::list_at(object, &["subjects"]).iter().map(subject).collect(),
        }
    }
}

impl RoleRef {
    /// What a binding refers to.
    pub fn of(binding: &Value) -> Self {
        Self {
            kind: meta::string_at(binding, &["roleRef", "kind"]).into(),
            name: meta::string_at(binding, &["roleRef", "name"]).into(),
        }
    }
}

impl Subject {
    /// Whether it is a user rather than a group, and its name; `None`: it is nobody.
    fn identity(&self) -> Option<(bool, Box<str>)> {
        match &*self.kind {
            "User" => Some((true, self.name.clone())),
            "Group" => Some((false, self.name.clone())),
            "ServiceAccount" if self.namespace.is_empty() => None,
            "ServiceAccount" => Some((true, format!("{ACCOUNT}{}:{}", self.namespace, self.name).into())),
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        self.identity().is_some_and(|(is_user, name)| match is_user {
            true => *name == *user.name,
            false => user.groups.iter().any(|group| **group == *name),
        })
    }
}

impl Grant {
    /// The same, of the first subject of the binding that is the user: what a person finds who reads it.
    pub fn first_for(&self, user: &User) -> Self {
        let earlier = self.binding.subjects[..self.subject].iter().position(|subject| subject.is(user));
        Self { binding: self.binding.clone(), subject: earlier.unwrap_or(self.subject) }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role, subjects } = &*self.binding;
        let (kind, name) = match &**namespace {
            "" => ("ClusterRoleBinding", name.to_string()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let subject = &subjects[self.subject];
        let who = match &*subject.kind {
            "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.to_string(),
        };
        let (role_kind, role_name) = (&role.kind, &*role.name);
        write!(out, "RBAC: allowed by {kind} {name:?} of {role_kind} {role_name:?} to {} {who:?}", subject.kind)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Role(role) => {
                write!(out, "{}.rbac.authorization.k8s.io {:?} not found", role.kind.to_lowercase(), &*role.name)
            }
            Missing::Kind(kind) => write!(out, "unsupported role reference kind: {:?}", &**kind),
        }
    }
}
