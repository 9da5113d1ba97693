//! The ways to be allowed to act as somebody else.
//!
//! A constrained way needs two rights: to be this other (`impersonate:<mode>`), and to do what is asked for while being
//! somebody else of this kind (`impersonate-on:<mode>:<verb>`). The old way needs one (`impersonate`), for anything.

use std::collections::BTreeMap;

use api::status::Status;
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
};
use authn::{
    ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP,
    service_account::{groups, is_label, split},
};
use authz::{Authorizers, MASTERS_GROUP, forbidden};

use super::ImpersonatedUser;

const GROUP: &str = "authentication.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many on, the right to all of them is tried first.
const MANY: usize = 4;

/// One way.
pub struct Mode {
    /// Which others it is for, and what is asked about the requestor.
    kind: Kind,
    /// The right to be this other.
    verb: &'static str,
    /// What the right to do something begins with; empty: it is not needed.
    on: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The node on which the requestor's pod runs.
    AssociatedNode,
    Node,
    ServiceAccount,
    /// Anybody else.
    User,
    Legacy,
}

/// All ways, narrow ones first.
pub const MODES: [Mode; 5] = [
    Mode { kind: Kind::AssociatedNode, verb: "impersonate:associated-node", on: "impersonate-on:associated-node:" },
    Mode { kind: Kind::Node, verb: "impersonate:arbitrary-node", on: "impersonate-on:arbitrary-node:" },
    Mode { kind: Kind::ServiceAccount, verb: "impersonate:serviceaccount", on: "impersonate-on:serviceaccount:" },
    Mode { kind: Kind::User, verb: "impersonate:user-info", on: "impersonate-on:user-info:" },
    Mode { kind: Kind::Legacy, verb: "impersonate", on: "" },
];

impl Mode {
    /// Whom the requestor may be this way; `None` if it is not for such others.
    pub async fn check(
        &self,
        authorizers: &Authorizers,
        wanted: &User,
        asked: &Attributes<'_>,
    ) -> Result<Option<ImpersonatedUser>, Status> {
        if !self.is_for(wanted, asked.user) {
            return Ok(None);
        }
        let user = self.requestor(asked.user);
        let rights = Rights { authorizers, user: &user, verb: self.verb };
        if !self.on.is_empty() {
            let verb = format!("{}{}", self.on, asked.verb);
            decide(authorizers, &Attributes { user: &user, verb: &verb, target: asked.target }).await?;
        }
        let mut other = wanted.clone();
        self.name(&rights, &mut other).await?;
        rights.uid(&wanted.uid).await?;
        self.groups(&rights, &wanted.groups).await?;
        self.extra(&rights, &wanted.extra).await?;
        let group = if other.name == ANONYMOUS_USER { UNAUTHENTICATED_GROUP } else { AUTHENTICATED_GROUP };
        let says = |name: &str| other.groups.iter().any(|group| group == name);
        if !says(group) && (group == UNAUTHENTICATED_GROUP || !says(UNAUTHENTICATED_GROUP)) {
            other.groups.push(group.to_owned());
        }
        let constraint = if self.is_constrained() { self.verb } else { "" };
        Ok(Some(ImpersonatedUser { user: other, constraint }))
    }

    fn is_constrained(&self) -> bool {
        self.kind != Kind::Legacy
    }

    fn is_for(&self, wanted: &User, requestor: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node(&wanted.name);
        match self.kind {
            Kind::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                let own = matches!(own, Some([one]) if Some(one.as_str()) == node);
                only_name && node.is_some() && split(&requestor.name).is_some() && own
            }
            Kind::Node => only_name && node.is_some(),
            Kind::ServiceAccount => only_name && split(&wanted.name).is_some(),
            Kind::User => node.is_none() && split(&wanted.name).is_none(),
            Kind::Legacy => true,
        }
    }

    /// Who asks. That a pod's account is on the node has been found out: authorizers see which facts are known of it, and not
    /// what they are, so that one right is for all nodes.
    fn requestor(&self, user: &User) -> User {
        let mut user = user.clone();
        if self.kind == Kind::AssociatedNode {
            let keys = user.extra.keys().cloned().collect();
            user.extra = BTreeMap::from([("authentication.kubernetes.io/associated-node-keys".into(), keys)]);
        }
        user
    }

    async fn name(&self, rights: &Rights<'_>, other: &mut User) -> Result<(), Status> {
        let group = if self.is_constrained() { GROUP } else { "" };
        let name = other.name.clone();
        let mut resource = ResourceAttributes {
            group,
            version: "v1",
            resource: "users",
            name: &name,
            ..ResourceAttributes::default()
        };
        if let Some(node) = node(&name).filter(|_| self.is_constrained()) {
            (resource.resource, resource.name) = ("nodes", node);
            if self.kind == Kind::AssociatedNode {
                resource.name = "*";
            }
            other.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, account)) = split(&name) {
            (resource.resource, resource.namespace, resource.name) = ("serviceaccounts", namespace, account);
            if other.groups.is_empty() {
                other.groups = groups(namespace);
            }
        }
        rights.to(resource).await
    }

    async fn groups(&self, rights: &Rights<'_>, groups: &[String]) -> Result<(), Status> {
        let group = if self.is_constrained() { GROUP } else { "" };
        let all = ResourceAttributes { group, version: "v1", resource: "groups", ..ResourceAttributes::default() };
        if self.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(rights.refused(all, "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS_GROUP) {
                let masters = ResourceAttributes { name: MASTERS_GROUP, ..all };
                return Err(rights.refused(masters, "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && rights.to(ResourceAttributes { name: "*", ..all }).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            rights.to(ResourceAttributes { name: group, ..all }).await?;
        }
        Ok(())
    }

    async fn extra(&self, rights: &Rights<'_>, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Status> {
        let all =
            ResourceAttributes { group: GROUP, version: "v1", resource: "userextras", ..ResourceAttributes::default() };
        if self.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| fault(key, values)) {
                return Err(rights.refused(all, &why));
            }
            let many = extra.len() >= MANY || extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && rights.to(ResourceAttributes { name: "*", subresource: "*", ..all }).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                rights.to(ResourceAttributes { name: value, subresource: key, ..all }).await?;
            }
        }
        Ok(())
    }
}

/// What is asked about who wants to be somebody else.
struct Rights<'a> {
    authorizers: &'a Authorizers,
    user: &'a User,
    verb: &'a str,
}

impl Rights<'_> {
    async fn to(&self, resource: ResourceAttributes<'_>) -> Result<(), Status> {
        decide(self.authorizers, &self.attributes(resource)).await
    }

    async fn uid(&self, uid: &str) -> Result<(), Status> {
        if uid.is_empty() {
            return Ok(());
        }
        self.to(ResourceAttributes {
            group: GROUP,
            version: "v1",
            resource: "uids",
            name: uid,
            ..ResourceAttributes::default()
        })
        .await
    }

    fn refused(&self, resource: ResourceAttributes<'_>, why: &str) -> Status {
        forbidden(&self.attributes(resource), why.to_owned())
    }

    fn attributes<'r>(&'r self, resource: ResourceAttributes<'r>) -> Attributes<'r> {
        Attributes { user: self.user, verb: self.verb, target: AttributesTarget::Resource(resource) }
    }
}

/// As the chain decides; an authorizer that failed is a reason like any other.
async fn decide(authorizers: &Authorizers, attributes: &Attributes<'_>) -> Result<(), Status> {
    let verdict = authorizers.authorize(attributes).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let (text, error) = (verdict.reason().to_string(), verdict.reason().error());
    let why = match (error, text.is_empty()) {
        (Some(error), true) => error.to_owned(),
        (Some(error), false) => format!("{error}: {text}"),
        (None, _) => text,
    };
    Err(forbidden(attributes, why))
}

/// The name of the node that is called so as a user.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    (name.len() <= 253 && name.split('.').all(is_label)).then_some(name)
}

/// What is wrong with an extra that somebody wants to have.
fn fault(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let prefixed = key
        .split_once('/')
        .is_some_and(|(domain, path)| domain.len() <= 253 && domain.split('.').all(is_label) && !path.is_empty());
    if !prefixed {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a \
             domain-prefixed path (such as \"acme.io/foo\")"
        ));
    }
    if values.iter().any(String::is_empty) {
        return Some("impersonating the empty string value in extra is not allowed".into());
    }
    None
}
