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
    attributes::{Asked, Attributes},
    cache_index::Live,
};
use async_trait::async_trait;
pub use index::{Missing, RoleRef};
pub use rule::{Rule, path_matches};
use store::Cache;

use self::index::Index;
use super::{Authorizer, Reason, Rules, Verdict, aggregate};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Roles and bindings in step with their objects.
pub struct Rbac {
    index: Live<Index>,
}

impl Rbac {
    /// Of the objects in a cache.
    pub fn new(cache: &Arc<Cache>) -> Result<Self, store::Error> {
        let resources: Vec<_> = RESOURCES.iter().filter_map(|name| schema().resource(GROUP, "v1", name)).collect();
        Ok(Self { index: Live::new(cache, &resources, Index::default())? })
    }

    /// What roles say.
    fn verdict(&self, attributes: &Attributes<'_>) -> Verdict {
        self.index.read(|index| verdict(index, attributes))
    }

    /// Every rule that applies to a user in a namespace, and what could not be found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Missing>) {
        self.index.read(|index| rules_for(index, user, namespace))
    }

    /// The rules of a role as of now, for a binding in `namespace`.
    pub async fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, Missing> {
        self.index.fresh(|index| index.rules(role, namespace).map(<[Rule]>::to_vec)).await
    }
}

fn verdict(index: &Index, attributes: &Attributes<'_>) -> Verdict {
    let namespace = match &attributes.asked {
        Asked::Resource(asked) => asked.namespace,
        Asked::Path(_) => "",
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
        Some(grant) => Verdict::Allowed(Reason::shared(Arc::new(grant.first_for(attributes.user)))),
        None => Verdict::NoOpinion(aggregate(missing).map_or_else(Reason::none, |why| format!("RBAC: {why}").into())),
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
    async fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        self.verdict(attributes)
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let (rules, missing) = self.rules_for(user, namespace);
        let errors = missing.iter().map(Missing::to_string).collect();
        Rules { rules, incomplete: false, errors }
    }
}
