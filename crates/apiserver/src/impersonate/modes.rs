//! Impersonation modes.
//!
//! A constrained mode requires two verbs: `impersonate:<mode>` on the user and `impersonate-on:<mode>:<verb>` on the
//! requested resource. The legacy mode requires `impersonate` and permits any request.

use std::collections::BTreeMap;

use api::status::Status;
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
};
use authn::{
    ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP,
    service_account::{groups, is_dns_label, split_user_name},
};
use authz::{Authorizers, MASTERS_GROUP, forbidden_with_reason};

use super::ImpersonatedUser;

const GROUP: &str = "authentication.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From this many entries on, the wildcard right is tried first.
const WILDCARD_THRESHOLD: usize = 4;

/// One impersonation mode.
pub struct ImpersonationMode {
    /// The users that it applies to.
    kind: ModeKind,
    /// The verb on the impersonated user.
    verb: &'static str,
    /// Prefix of the verb on the requested resource; empty if it is not checked.
    on: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeKind {
    /// The node on which the requestor's pod runs.
    AssociatedNode,
    Node,
    ServiceAccount,
    /// Any other user.
    User,
    Legacy,
}

/// All modes, the most constrained first.
pub const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode {
        kind: ModeKind::AssociatedNode,
        verb: "impersonate:associated-node",
        on: "impersonate-on:associated-node:",
    },
    ImpersonationMode {
        kind: ModeKind::Node,
        verb: "impersonate:arbitrary-node",
        on: "impersonate-on:arbitrary-node:",
    },
    ImpersonationMode {
        kind: ModeKind::ServiceAccount,
        verb: "impersonate:serviceaccount",
        on: "impersonate-on:serviceaccount:",
    },
    ImpersonationMode { kind: ModeKind::User, verb: "impersonate:user-info", on: "impersonate-on:user-info:" },
    ImpersonationMode { kind: ModeKind::Legacy, verb: "impersonate", on: "" },
];

impl ImpersonationMode {
    /// Returns the impersonated user; `None` if the mode does not apply, 403 if it is not permitted.
    pub async fn check_mode(
        &self,
        authorizers: &Authorizers,
        wanted: &User,
        asked: &Attributes<'_>,
    ) -> Result<Option<ImpersonatedUser>, Status> {
        if !self.applies_to(wanted, asked.user) {
            return Ok(None);
        }
        let user = self.requestor_info(asked.user);
        let rights = ImpersonationRights { authorizers, user: &user, verb: self.verb };
        if !self.on.is_empty() {
            let verb = format!("{}{}", self.on, asked.verb);
            authorize_right(authorizers, &Attributes { user: &user, verb: &verb, target: asked.target }).await?;
        }
        let mut other = wanted.clone();
        self.check_name(&rights, &mut other).await?;
        rights.check_uid(&wanted.uid).await?;
        self.check_groups(&rights, &wanted.groups).await?;
        self.check_extra(&rights, &wanted.extra).await?;
        let group = if other.name == ANONYMOUS_USER { UNAUTHENTICATED_GROUP } else { AUTHENTICATED_GROUP };
        let says = |name: &str| other.groups.iter().any(|group| group == name);
        if !says(group) && (group == UNAUTHENTICATED_GROUP || !says(UNAUTHENTICATED_GROUP)) {
            other.groups.push(group.to_owned());
        }
        let constraint = if self.is_constrained() { self.verb } else { "" };
        Ok(Some(ImpersonatedUser { user: other, constraint }))
    }

    fn is_constrained(&self) -> bool {
        self.kind != ModeKind::Legacy
    }

    fn applies_to(&self, wanted: &User, requestor: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        match self.kind {
            ModeKind::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                let own = matches!(own, Some([one]) if Some(one.as_str()) == node);
                only_name && node.is_some() && split_user_name(&requestor.name).is_some() && own
            }
            ModeKind::Node => only_name && node.is_some(),
            ModeKind::ServiceAccount => only_name && split_user_name(&wanted.name).is_some(),
            ModeKind::User => node.is_none() && split_user_name(&wanted.name).is_none(),
            ModeKind::Legacy => true,
        }
    }

    /// The requestor as authorizers see it. For an associated node only the keys of its extra fields are kept, so that
    /// one right covers all nodes.
    fn requestor_info(&self, user: &User) -> User {
        let mut user = user.clone();
        if self.kind == ModeKind::AssociatedNode {
            let keys = user.extra.keys().cloned().collect();
            user.extra = BTreeMap::from([("authentication.kubernetes.io/associated-node-keys".into(), keys)]);
        }
        user
    }

    async fn check_name(&self, rights: &ImpersonationRights<'_>, other: &mut User) -> Result<(), Status> {
        let group = if self.is_constrained() { GROUP } else { "" };
        let name = other.name.clone();
        let mut resource = ResourceAttributes {
            group,
            version: "v1",
            resource: "users",
            name: &name,
            ..ResourceAttributes::default()
        };
        if let Some(node) = node_name(&name).filter(|_| self.is_constrained()) {
            (resource.resource, resource.name) = ("nodes", node);
            if self.kind == ModeKind::AssociatedNode {
                resource.name = "*";
            }
            other.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, account)) = split_user_name(&name) {
            (resource.resource, resource.namespace, resource.name) = ("serviceaccounts", namespace, account);
            if other.groups.is_empty() {
                other.groups = groups(namespace);
            }
        }
        rights.check_right(resource).await
    }

    async fn check_groups(&self, rights: &ImpersonationRights<'_>, groups: &[String]) -> Result<(), Status> {
        let group = if self.is_constrained() { GROUP } else { "" };
        let all = ResourceAttributes { group, version: "v1", resource: "groups", ..ResourceAttributes::default() };
        if self.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(rights.forbidden_status(all, "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS_GROUP) {
                let masters = ResourceAttributes { name: MASTERS_GROUP, ..all };
                return Err(rights.forbidden_status(masters, "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= WILDCARD_THRESHOLD
                && rights.check_right(ResourceAttributes { name: "*", ..all }).await.is_ok()
            {
                return Ok(());
            }
        }
        for group in groups {
            rights.check_right(ResourceAttributes { name: group, ..all }).await?;
        }
        Ok(())
    }

    async fn check_extra(
        &self,
        rights: &ImpersonationRights<'_>,
        extra: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Status> {
        let all =
            ResourceAttributes { group: GROUP, version: "v1", resource: "userextras", ..ResourceAttributes::default() };
        if self.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| extra_error(key, values)) {
                return Err(rights.forbidden_status(all, &why));
            }
            let many =
                extra.len() >= WILDCARD_THRESHOLD || extra.values().map(Vec::len).sum::<usize>() >= WILDCARD_THRESHOLD;
            if many && rights.check_right(ResourceAttributes { name: "*", subresource: "*", ..all }).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                rights.check_right(ResourceAttributes { name: value, subresource: key, ..all }).await?;
            }
        }
        Ok(())
    }
}

/// Checks the rights of a requestor.
struct ImpersonationRights<'a> {
    authorizers: &'a Authorizers,
    user: &'a User,
    verb: &'a str,
}

impl ImpersonationRights<'_> {
    async fn check_right(&self, resource: ResourceAttributes<'_>) -> Result<(), Status> {
        authorize_right(self.authorizers, &self.right_attributes(resource)).await
    }

    async fn check_uid(&self, uid: &str) -> Result<(), Status> {
        if uid.is_empty() {
            return Ok(());
        }
        self.check_right(ResourceAttributes {
            group: GROUP,
            version: "v1",
            resource: "uids",
            name: uid,
            ..ResourceAttributes::default()
        })
        .await
    }

    fn forbidden_status(&self, resource: ResourceAttributes<'_>, why: &str) -> Status {
        forbidden_with_reason(&self.right_attributes(resource), why.to_owned())
    }

    fn right_attributes<'r>(&'r self, resource: ResourceAttributes<'r>) -> Attributes<'r> {
        Attributes { user: self.user, verb: self.verb, target: AttributesTarget::Resource(resource) }
    }
}

/// Authorizes a right; errors of authorizers become part of the 403 message.
async fn authorize_right(authorizers: &Authorizers, attributes: &Attributes<'_>) -> Result<(), Status> {
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
    Err(forbidden_with_reason(attributes, why))
}

/// The node name of a `system:node:` user.
fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    (name.len() <= 253 && name.split('.').all(is_dns_label)).then_some(name)
}

/// The validation error of an impersonated extra field, if any.
fn extra_error(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let prefixed = key
        .split_once('/')
        .is_some_and(|(domain, path)| domain.len() <= 253 && domain.split('.').all(is_dns_label) && !path.is_empty());
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
