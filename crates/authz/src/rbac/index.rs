//! An index of roles and bindings by subject.

use std::{collections::HashMap, fmt, sync::Arc};

use api::{Value, meta};
use apiserver_core::{User, cache_index::Indexer, loopback::ObjectKey};

use super::rule::PolicyRule;

/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// All roles and bindings. The cluster scope is the namespace "".
#[derive(Default)]
pub struct RbacIndex {
    scopes: HashMap<Box<str>, ScopeBindings>,
}

/// The roles and bindings of a namespace. ClusterRoles are in the cluster scope.
#[derive(Default)]
struct ScopeBindings {
    roles: HashMap<Box<str>, Arc<[PolicyRule]>>,
    bindings: HashMap<Box<str>, Arc<IndexedBinding>>,
    /// Grants by user name, service accounts included.
    users: HashMap<Box<str>, Vec<SubjectGrant>>,
    groups: HashMap<Box<str>, Vec<SubjectGrant>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexedBinding {
    /// Empty for a ClusterRoleBinding.
    namespace: Box<str>,
    name: Box<str>,
    /// The bound role.
    pub role: RoleRef,
    subjects: Vec<BindingSubject>,
}

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: Box<str>,
    /// Name of the role.
    pub name: Box<str>,
}

#[derive(Debug, PartialEq, Eq)]
struct BindingSubject {
    kind: Box<str>,
    name: Box<str>,
    /// Namespace of a service account; defaults to that of the binding.
    namespace: Box<str>,
}

/// A subject of a binding.
#[derive(Clone, Debug)]
pub struct SubjectGrant {
    binding: Arc<IndexedBinding>,
    /// Index of the subject in the binding.
    subject: usize,
}

/// A role that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingRole {
    /// The role does not exist.
    Role(RoleRef),
    /// The kind is neither Role nor ClusterRole.
    Kind(Box<str>),
}

impl RbacIndex {
    /// Visits the grants of `user` in `namespace`, cluster scope first, until `visit` returns true.
    pub fn visit_grants<'a>(
        &'a self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(&'a SubjectGrant, Result<&'a [PolicyRule], MissingRole>) -> bool,
    ) {
        let namespaces = if namespace.is_empty() { [Some(""), None] } else { [Some(""), Some(namespace)] };
        for scope in namespaces.into_iter().flatten().filter_map(|namespace| self.scopes.get(namespace)) {
            let by_group = user.groups.iter().filter_map(|group| scope.groups.get(group.as_str()));
            for grant in scope.users.get(user.name.as_str()).into_iter().chain(by_group).flatten() {
                if visit(grant, self.role_rules(&grant.binding.role, &grant.binding.namespace)) {
                    return;
                }
            }
        }
    }

    /// Returns the rules of a role that a binding in `namespace` refers to.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<&[PolicyRule], MissingRole> {
        let scope = match &*role.kind {
            "ClusterRole" => "",
            "Role" if !namespace.is_empty() => namespace,
            "Role" => return Err(MissingRole::Role(role.clone())),
            _ => return Err(MissingRole::Kind(role.kind.clone())),
        };
        let rules = self.scopes.get(scope).and_then(|scope| scope.roles.get(&role.name));
        rules.map(|rules| &**rules).ok_or_else(|| MissingRole::Role(role.clone()))
    }
}

impl Indexer for RbacIndex {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        let scope = match self.scopes.get_mut(key.namespace) {
            Some(scope) => scope,
            None => self.scopes.entry(key.namespace.into()).or_default(),
        };
        if is_role(key) {
            scope.roles.insert(key.name.into(), PolicyRule::from_role(object).into());
        } else {
            scope.add_binding(IndexedBinding::from_object(key, object));
        }
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        let Some(scope) = self.scopes.get_mut(key.namespace) else { return };
        if is_role(key) {
            scope.roles.remove(key.name);
        } else {
            scope.remove_binding(key.name);
        }
        if scope.roles.is_empty() && scope.bindings.is_empty() {
            self.scopes.remove(key.namespace);
        }
    }

    fn clear(&mut self) {
        self.scopes.clear();
    }
}

fn is_role(key: ObjectKey<'_>) -> bool {
    matches!(key.resource.kind, "Role" | "ClusterRole")
}

impl ScopeBindings {
    fn add_binding(&mut self, binding: IndexedBinding) {
        self.remove_binding(&binding.name);
        let binding = Arc::new(binding);
        for (index, subject) in binding.subjects.iter().enumerate() {
            let Some((user, name)) = subject.subject_identity() else { continue };
            let grants = if user { &mut self.users } else { &mut self.groups }.entry(name).or_default();
            // Sorted by name, so that the reason of a decision is stable.
            let position = grants.partition_point(|grant| grant.binding.name < binding.name);
            // A subject that is listed twice is indexed once.
            if grants.get(position).is_none_or(|existing| !Arc::ptr_eq(&existing.binding, &binding)) {
                grants.insert(position, SubjectGrant { binding: binding.clone(), subject: index });
            }
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn remove_binding(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((user, name)) = subject.subject_identity() else { continue };
            let all = if user { &mut self.users } else { &mut self.groups };
            let Some(grants) = all.get_mut(&name) else { continue };
            grants.retain(|grant| !Arc::ptr_eq(&grant.binding, &binding));
            if grants.is_empty() {
                all.remove(&name);
            }
        }
    }
}

impl IndexedBinding {
    fn from_object(key: ObjectKey<'_>, object: &Value) -> Self {
        let subject = |subject: &Value| {
            let namespace = match meta::string_at(subject, &["namespace"]) {
                "" => key.namespace,
                namespace => namespace,
            };
            BindingSubject {
                kind: meta::string_at(subject, &["kind"]).into(),
                name: meta::string_at(subject, &["name"]).into(),
                namespace: namespace.into(),
            }
        };
        Self {
            namespace: key.namespace.into(),
            name: key.name.into(),
            role: RoleRef::from_binding(object),
            subjects: meta::list_at(object, &["subjects"]).iter().map(subject).collect(),
        }
    }
}

impl RoleRef {
    /// Returns the role of a binding.
    pub fn from_binding(binding: &Value) -> Self {
        Self {
            kind: meta::string_at(binding, &["roleRef", "kind"]).into(),
            name: meta::string_at(binding, &["roleRef", "name"]).into(),
        }
    }
}

impl BindingSubject {
    /// Returns whether the subject is a user, and its name; `None` if it is invalid.
    fn subject_identity(&self) -> Option<(bool, Box<str>)> {
        match &*self.kind {
            "User" => Some((true, self.name.clone())),
            "Group" => Some((false, self.name.clone())),
            "ServiceAccount" if self.namespace.is_empty() => None,
            "ServiceAccount" => {
                Some((true, format!("{SERVICE_ACCOUNT_PREFIX}{}:{}", self.namespace, self.name).into()))
            }
            _ => None,
        }
    }

    fn matches_user(&self, user: &User) -> bool {
        self.subject_identity().is_some_and(|(is_user, name)| match is_user {
            true => *name == *user.name,
            false => user.groups.iter().any(|group| **group == *name),
        })
    }
}

impl SubjectGrant {
    /// Returns the first subject of the binding that matches the user, as upstream reports it.
    pub fn first_for(&self, user: &User) -> Self {
        let earlier = self.binding.subjects[..self.subject].iter().position(|subject| subject.matches_user(user));
        Self { binding: self.binding.clone(), subject: earlier.unwrap_or(self.subject) }
    }
}

impl fmt::Display for SubjectGrant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IndexedBinding { namespace, name, role, subjects } = &*self.binding;
        let (kind, name) = match &**namespace {
            "" => ("ClusterRoleBinding", name.to_string()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let subject = &subjects[self.subject];
        let subject_name = match &*subject.kind {
            "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.to_string(),
        };
        let (role_kind, role_name) = (&role.kind, &*role.name);
        write!(
            out,
            "RBAC: allowed by {kind} {name:?} of {role_kind} {role_name:?} to {} {subject_name:?}",
            subject.kind
        )
    }
}

impl fmt::Display for MissingRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingRole::Role(role) => {
                write!(out, "{}.rbac.authorization.k8s.io {:?} not found", role.kind.to_lowercase(), &*role.name)
            }
            MissingRole::Kind(kind) => write!(out, "unsupported role reference kind: {:?}", &**kind),
        }
    }
}
