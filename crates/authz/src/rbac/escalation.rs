//! Privilege escalation checks: the writer of a role must hold all of its rules, and the writer of a binding all rules
//! of its role. The verbs `escalate` and `bind`, and the group system:masters, are exempt.

use api::{Value, meta, status::Status};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    request::ResourceRequest,
};
use async_trait::async_trait;
use serde_json::json;

use super::{MissingRole, PolicyRule, RoleRef, rule_coverage};
use crate::{Authorizers, EscalationAttributes, EscalationCheck, MASTERS_GROUP};

const AGGREGATION: &str = "must have cluster-admin privileges to use the aggregationRule";

/// Checks Roles and ClusterRoles.
pub struct RoleEscalationCheck;

/// Checks RoleBindings and ClusterRoleBindings.
pub struct BindingEscalationCheck;

#[async_trait]
impl EscalationCheck for RoleEscalationCheck {
    async fn check_escalation(&self, attributes: EscalationAttributes<'_>) -> Result<(), Status> {
        let EscalationAttributes { authorizers, target, object, current } = attributes;
        if is_master(&target.user) || may_escalate(authorizers, target).await || is_garbage_collection(object, current)
        {
            return Ok(());
        }
        let owned = HeldRules::for_request(authorizers, target);
        owned.check_covers(&PolicyRule::from_role(object), target, object)?;
        let aggregates = |role: &Value| !meta::list_at(role, &["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if aggregates(object) || current.is_some_and(aggregates) {
            // An aggregated role can collect any rule.
            let all = json!({"rules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]});
            if !rule_coverage::missing_rules(&owned.rules, &PolicyRule::from_role(&all)).is_empty() {
                return Err(Status::forbidden(&target.resource, meta::name(object), AGGREGATION));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EscalationCheck for BindingEscalationCheck {
    async fn check_escalation(&self, attributes: EscalationAttributes<'_>) -> Result<(), Status> {
        let EscalationAttributes { authorizers, target, object, current } = attributes;
        if is_master(&target.user)
            || is_garbage_collection(object, current)
            || may_bind(authorizers, target, object).await
        {
            return Ok(());
        }
        let role = RoleRef::from_binding(object);
        let rules = authorizers.rbac().role_rules(&role, &target.namespace).await.map_err(new_not_found)?;
        HeldRules::for_request(authorizers, target).check_covers(&rules, target, object)
    }
}

/// The rules that the requesting user holds.
struct HeldRules<'a> {
    user: &'a User,
    rules: Vec<PolicyRule>,
    missing: Vec<MissingRole>,
}

impl<'a> HeldRules<'a> {
    fn for_request(authorizers: &Authorizers, target: &'a ResourceRequest) -> Self {
        let (rules, missing) = authorizers.rbac().rules_for(&target.user, &target.namespace);
        Self { user: &target.user, rules, missing }
    }

    fn check_covers(&self, wanted: &[PolicyRule], target: &ResourceRequest, object: &Value) -> Result<(), Status> {
        let lines = rule_coverage::missing_rules(&self.rules, wanted);
        if lines.is_empty() {
            return Ok(());
        }
        let mut message = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            self.user.name,
            rule_coverage::format_quoted(&self.user.groups),
            lines.join("\n")
        );
        if !self.missing.is_empty() {
            let missing: Vec<String> = self.missing.iter().map(MissingRole::to_string).collect();
            message += &format!("; resolution errors: [{}]", missing.join(" "));
        }
        Err(Status::forbidden(&target.resource, meta::name(object), &message))
    }
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

async fn may_escalate(authorizers: &Authorizers, target: &ResourceRequest) -> bool {
    let resource = ResourceAttributes {
        group: target.resource.group,
        version: "*",
        resource: target.resource.name,
        namespace: &target.namespace,
        name: &target.name,
        ..ResourceAttributes::default()
    };
    let attributes = Attributes { user: &target.user, verb: "escalate", target: AttributesTarget::Resource(resource) };
    authorizers.check_access(&attributes).await
}

async fn may_bind(authorizers: &Authorizers, target: &ResourceRequest, binding: &Value) -> bool {
    let resource = match meta::string_at(binding, &["roleRef", "kind"]) {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => return false,
    };
    let role = ResourceAttributes {
        group: meta::string_at(binding, &["roleRef", "apiGroup"]),
        version: "*",
        resource,
        namespace: &target.namespace,
        name: meta::string_at(binding, &["roleRef", "name"]),
        ..ResourceAttributes::default()
    };
    let attributes = Attributes { user: &target.user, verb: "bind", target: AttributesTarget::Resource(role) };
    authorizers.check_access(&attributes).await
}

/// Whether a write changes only fields of the garbage collector, which grants nothing.
fn is_garbage_collection(object: &Value, current: Option<&Value>) -> bool {
    let Some(current) = current else { return false };
    let mut expected = object.clone();
    for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        match current["metadata"].get(field) {
            Some(value) => drop(meta::metadata_mut(&mut expected).insert(field.into(), value.clone())),
            None => drop(meta::metadata_mut(&mut expected).remove(field)),
        }
    }
    expected == *current
}

/// The rules of a role that does not exist cannot be compared.
fn new_not_found(missing: MissingRole) -> Status {
    match &missing {
        MissingRole::Role(role) => {
            let name = format!("{}s", role.kind.to_lowercase());
            let resource = super::schema().resource(super::GROUP, "v1", &name);
            resource.map_or_else(
                || Status::from_code(500, missing.to_string()),
                |resource| Status::not_found(resource, &role.name),
            )
        }
        MissingRole::Kind(_) => Status::from_code(500, missing.to_string()),
    }
}
