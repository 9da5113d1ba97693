//! RBAC: what roles allow to those whom bindings name.
//!
//! Roles only add: what some role of the user allows is allowed, and nothing is denied. A decision looks at the bindings of
//! the user's own name and groups, in the cluster and in the namespace, however many others there are.

mod cover;
pub mod escalation;
mod index;
mod rule;
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
pub use index::{Missing, RoleRef};
pub use rule::{Rule, path_matches};
use store::WatchCache;

use self::index::Index;
use super::{Authorizer, Decision, Reason, ResolvedRules, aggregate};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Roles and bindings in step with their objects.
pub struct Rbac {
    index: CacheIndex<Index>,
}

impl Rbac {
    /// Of the objects in a cache.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let resources: Vec<_> = RESOURCES.iter().filter_map(|name| schema().resource(GROUP, "v1", name)).collect();
        Ok(Self { index: CacheIndex::new(cache, &resources, Index::default())? })
    }

    /// What roles say.
    fn verdict(&self, attributes: &Attributes<'_>) -> Decision {
        self.index.read(|index| verdict(index, attributes))
    }

    /// Every rule that applies to a user in a namespace, and what could not be found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Missing>) {
        self.index.read(|index| rules_for(index, user, namespace))
    }

    /// The rules of a role as of now, for a binding in `namespace`.
    pub async fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, Missing> {
        self.index.read_fresh(|index| index.rules(role, namespace).map(<[Rule]>::to_vec)).await
    }
}

fn verdict(index: &Index, attributes: &Attributes<'_>) -> Decision {
    let namespace = match &attributes.target {
        AttributesTarget::Resource(asked) => asked.namespace,
        AttributesTarget::NonResource(_) => "",
    };
    let mut found = None;
    let mut missing = Vec::new();
    index.visit(attributes.user, namespace, |grant, rules| {
        match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => found = Some(grant),
            Ok(_) => {}
            Err(error) => missing.push(error.to_string()),
        }
        found.is_some()
    });
    match found {
        Some(grant) => Decision::Allowed(Reason::shared(Arc::new(grant.first_for(attributes.user)))),
        None => Decision::NoOpinion(aggregate(missing).map_or_else(Reason::none, |why| format!("RBAC: {why}").into())),
    }
}

fn rules_for(index: &Index, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Missing>) {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    index.visit(user, namespace, |_, rules| {
        match rules {
            Ok(rules) => all.extend_from_slice(rules),
            Err(error) => missing.push(error),
        }
        false
    });
    (all, missing)
}

#[async_trait]
impl Authorizer for Arc<Rbac> {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.verdict(attributes)
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let (rules, missing) = Rbac::rules_for(self, user, namespace);
        let errors = missing.iter().map(Missing::to_string).collect();
        ResolvedRules { rules, incomplete: false, errors }
    }
}
