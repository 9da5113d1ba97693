//! RBAC: roles, and bindings of roles to subjects.
//!
//! Rules only allow; nothing is denied. A decision reads the bindings of the user's name and groups, in the cluster and
//! in the namespace, independent of the number of other bindings.

pub mod escalation;
mod index;
mod rule;
mod rule_coverage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::schema::schema;
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget},
    cache_index::CacheIndex,
};
use async_trait::async_trait;
pub use index::{MissingRole, RoleRef};
pub use rule::{PolicyRule, path_matches};
use store::WatchCache;

use self::index::RbacIndex;
use super::{Authorizer, Decision, Reason, ResolvedRules, aggregate_errors};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Authorizes with the roles and bindings of the watch cache.
pub struct RbacAuthorizer {
    index: CacheIndex<RbacIndex>,
}

impl RbacAuthorizer {
    /// Indexes the roles and bindings of the watch cache.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let resources: Vec<_> = RESOURCES.iter().filter_map(|name| schema().resource(GROUP, "v1", name)).collect();
        Ok(Self { index: CacheIndex::new(cache, &resources, RbacIndex::default())? })
    }

    /// Decides a request.
    fn authorize_attributes(&self, attributes: &Attributes<'_>) -> Decision {
        self.index.read(|index| decide_request(index, attributes))
    }

    /// Returns the rules of a user in a namespace, and the roles that do not exist.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<MissingRole>) {
        self.index.read(|index| resolve_rules(index, user, namespace))
    }

    /// Returns the current rules of a role that a binding in `namespace` refers to.
    pub async fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>, MissingRole> {
        self.index.read_fresh(|index| index.role_rules(role, namespace).map(<[PolicyRule]>::to_vec)).await
    }
}

fn decide_request(index: &RbacIndex, attributes: &Attributes<'_>) -> Decision {
    let namespace = match &attributes.target {
        AttributesTarget::Resource(resource) => resource.namespace,
        AttributesTarget::NonResource(_) => "",
    };
    let mut granted = None;
    let mut missing = Vec::new();
    index.visit_grants(attributes.user, namespace, |grant, rules| {
        match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows_request(attributes)) => granted = Some(grant),
            Ok(_) => {}
            Err(error) => missing.push(error.to_string()),
        }
        granted.is_some()
    });
    match granted {
        Some(grant) => Decision::Allowed(Reason::from_display(Arc::new(grant.first_for(attributes.user)))),
        None => Decision::NoOpinion(
            aggregate_errors(missing).map_or_else(Reason::none, |why| format!("RBAC: {why}").into()),
        ),
    }
}

fn resolve_rules(index: &RbacIndex, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<MissingRole>) {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    index.visit_grants(user, namespace, |_, rules| {
        match rules {
            Ok(rules) => all.extend_from_slice(rules),
            Err(error) => missing.push(error),
        }
        false
    });
    (all, missing)
}

#[async_trait]
impl Authorizer for Arc<RbacAuthorizer> {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.authorize_attributes(attributes)
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let (rules, missing) = RbacAuthorizer::rules_for(self, user, namespace);
        let errors = missing.iter().map(MissingRole::to_string).collect();
        ResolvedRules { rules, incomplete: false, errors }
    }
}
