//! Nobody grants what they do not have: who writes a role must hold all of its rules, and who binds one all of the rules of
//! that role. The verbs `escalate` and `bind` lift this, and system:masters may do everything.

use api::{Value, meta, status::Status};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    request::ResourceRequest,
};
use async_trait::async_trait;
use serde_json::json;

use super::{Missing, RoleRef, Rule, cover};
use crate::{Authorizers, EscalationAttributes, EscalationCheck, MASTERS_GROUP};

const AGGREGATION: &str = "must have cluster-admin privileges to use the aggregationRule";

/// Guards roles and cluster roles.
pub struct Roles;

/// Guards bindings of both kinds.
pub struct Bindings;

#[async_trait]
impl EscalationCheck for Roles {
    async fn check_escalation(&self, guarded: EscalationAttributes<'_>) -> Result<(), Status> {
        let EscalationAttributes { authorizers, target, object, current } = guarded;
        if is_master(&target.user) || may_escalate(authorizers, target).await || only_collected(object, current) {
            return Ok(());
        }
        let owned = Owned::of(authorizers, target);
        owned.must_cover(&Rule::all_of(object), target, object)?;
        let aggregates = |role: &Value| !meta::list_at(role, &["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if aggregates(object) || current.is_some_and(aggregates) {
            // It can gather anything, and keep others from taking it away.
            let all = json!({"rules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]});
            if !cover::uncovered(&owned.rules, &Rule::all_of(&all)).is_empty() {
                return Err(Status::forbidden(&target.resource, meta::name(object), AGGREGATION));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EscalationCheck for Bindings {
    async fn check_escalation(&self, guarded: EscalationAttributes<'_>) -> Result<(), Status> {
        let EscalationAttributes { authorizers, target, object, current } = guarded;
        if is_master(&target.user) || only_collected(object, current) || may_bind(authorizers, target, object).await {
            return Ok(());
        }
        let role = RoleRef::of(object);
        let rules = authorizers.rbac().rules_of(&role, &target.namespace).await.map_err(not_found)?;
        Owned::of(authorizers, target).must_cover(&rules, target, object)
    }
}

/// What somebody holds where they ask.
struct Owned<'a> {
    user: &'a User,
    rules: Vec<Rule>,
    missing: Vec<Missing>,
}

impl<'a> Owned<'a> {
    fn of(authorizers: &Authorizers, target: &'a ResourceRequest) -> Self {
        let (rules, missing) = authorizers.rbac().rules_for(&target.user, &target.namespace);
        Self { user: &target.user, rules, missing }
    }

    fn must_cover(&self, wanted: &[Rule], target: &ResourceRequest, object: &Value) -> Result<(), Status> {
        let lines = cover::uncovered(&self.rules, wanted);
        if lines.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            self.user.name,
            cover::quoted(&self.user.groups),
            lines.join("\n")
        );
        if !self.missing.is_empty() {
            let missing: Vec<String> = self.missing.iter().map(Missing::to_string).collect();
            why += &format!("; resolution errors: [{}]", missing.join(" "));
        }
        Err(Status::forbidden(&target.resource, meta::name(object), &why))
    }
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

async fn may_escalate(authorizers: &Authorizers, target: &ResourceRequest) -> bool {
    let asked = ResourceAttributes {
        group: target.resource.group,
        version: "*",
        resource: target.resource.name,
        namespace: &target.namespace,
        name: &target.name,
        ..ResourceAttributes::default()
    };
    let attributes = Attributes { user: &target.user, verb: "escalate", target: AttributesTarget::Resource(asked) };
    authorizers.is_allowed(&attributes).await
}

async fn may_bind(authorizers: &Authorizers, target: &ResourceRequest, binding: &Value) -> bool {
    let resource = match meta::string_at(binding, &["roleRef", "kind"]) {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => return false,
    };
    let asked = ResourceAttributes {
        group: meta::string_at(binding, &["roleRef", "apiGroup"]),
        version: "*",
        resource,
        namespace: &target.namespace,
        name: meta::string_at(binding, &["roleRef", "name"]),
        ..ResourceAttributes::default()
    };
    let attributes = Attributes { user: &target.user, verb: "bind", target: AttributesTarget::Resource(asked) };
    authorizers.is_allowed(&attributes).await
}

/// Whether a change is only what the garbage collector does: that grants nothing.
fn only_collected(object: &Value, current: Option<&Value>) -> bool {
    let Some(current) = current else { return false };
    let mut same = object.clone();
    for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        match current["metadata"].get(field) {
            Some(value) => drop(meta::metadata_mut(&mut same).insert(field.into(), value.clone())),
            None => drop(meta::metadata_mut(&mut same).remove(field)),
        }
    }
    same == *current
}

/// A binding of a role that does not exist cannot be weighed.
fn not_found(missing: Missing) -> Status {
    match &missing {
        Missing::Role(role) => {
            let resource = format!("{}s", role.kind.to_lowercase());
            let found = super::schema().resource(super::GROUP, "v1", &resource);
            found.map_or_else(|| Status::from_code(500, missing.to_string()), |row| Status::not_found(row, &role.name))
        }
        Missing::Kind(_) => Status::from_code(500, missing.to_string()),
    }
}
