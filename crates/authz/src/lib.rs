//! May this user do this? A chain of authorizers, each behind [`Authorizer`]: the first that allows or denies decides, and
//! what nobody has an opinion on is refused.
//!
//! The pipeline asks for every request; reviews, impersonation and admission plug-ins ask the same [`Authorizers`] about
//! others. An answer costs no text: reasons are written when somebody reads them.

mod abac;
mod always;
pub mod bootstrap_policy;
pub mod config;
mod escalation_check;
mod forbidden;
mod node;
mod rbac;
mod reason;
mod request;
mod settings;
pub mod webhook;

use std::sync::{Arc, PoisonError, RwLock};

pub use abac::{Policies, Unreadable};
use api::status::Status;
pub use apiserver_core::user::MASTERS_GROUP;
use apiserver_core::{User, attributes::Attributes};
use async_trait::async_trait;
pub use escalation_check::{EscalationAttributes, EscalationCheck};
pub use node::POD_SECRETS;
pub use rbac::{Rbac, Rule, escalation};
pub use reason::{Reason, aggregate};
pub use settings::{Authorization, Mode};
use store::WatchCache;
pub use webhook::Webhook;

/// What an authorizer says.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Yes; nobody else is asked.
    Allowed(Reason),
    /// No; nobody else is asked.
    Denied(Reason),
    /// Somebody else may know.
    NoOpinion(Reason),
}

impl Decision {
    /// Whether it is a yes.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allowed(_))
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        let (Decision::Allowed(reason) | Decision::Denied(reason) | Decision::NoOpinion(reason)) = self;
        reason
    }
}

/// One link of the chain.
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Whether the user may.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// What the user may do in a namespace, as far as it can be told without asking for something.
    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules;
}

/// What somebody may do.
#[derive(Clone, Debug, Default)]
pub struct ResolvedRules {
    /// What is allowed.
    pub rules: Vec<Rule>,
    /// More may be allowed.
    pub incomplete: bool,
    /// What could not be found out.
    pub errors: Vec<String>,
}

/// The chain. Another can take its place while the server runs.
pub struct Authorizers {
    links: RwLock<Arc<Links>>,
    /// The kinds that the first chain has: others need what is only there from the start.
    kinds: Vec<&'static str>,
    /// Also where it is not in the chain: what roles grant is looked at when they are written.
    rbac: Arc<Rbac>,
    node: Option<Arc<node::Node>>,
}

type Links = Vec<Box<dyn Authorizer>>;

impl Authorizers {
    /// The chain that the settings name, over the objects in a cache.
    pub fn new(settings: &Authorization, cache: &Arc<WatchCache>) -> Result<Arc<Self>, store::StoreError> {
        let kinds: Vec<&str> = settings.modes.iter().map(Mode::kind).collect();
        let node = if kinds.contains(&"Node") { Some(Arc::new(node::Node::new(cache)?)) } else { None };
        let rbac = Arc::new(Rbac::new(cache)?);
        let new = Self { links: RwLock::default(), kinds, rbac, node };
        new.replace(&settings.modes).map_err(store::StoreError::Unusable)?;
        Ok(Arc::new(new))
    }

    /// Puts another chain in place. It may have what the first one had, and whatever needs nothing of the server.
    pub fn replace(&self, modes: &[Mode]) -> Result<(), String> {
        let late = |mode: &Mode| {
            let kind = mode.kind();
            format!("authorizer type {kind} is not allowed if it was not enabled at initial server startup")
        };
        let mut links: Links = Vec::new();
        for mode in modes {
            if matches!(mode, Mode::Abac(_) | Mode::Rbac) && !self.kinds.contains(&mode.kind()) {
                return Err(late(mode));
            }
            links.push(match mode {
                Mode::AlwaysAllow => Box::new(always::Allow),
                Mode::AlwaysDeny => Box::new(always::Deny),
                Mode::Webhook(webhook) => Box::new(webhook::Asking::new(webhook.clone())),
                Mode::Abac(policies) => Box::new(policies.clone()),
                Mode::Rbac => Box::new(self.rbac.clone()),
                Mode::Node => Box::new(self.node.clone().ok_or_else(|| late(mode))?),
            });
        }
        *self.links.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(links);
        Ok(())
    }

    fn links(&self) -> Arc<Links> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Roles and bindings.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// What somebody may do in a namespace.
    pub fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut all = ResolvedRules::default();
        for link in self.links().iter() {
            let ResolvedRules { rules, incomplete, errors } = link.rules_for(user, namespace);
            all.rules.extend(rules);
            all.incomplete |= incomplete;
            all.errors.extend(errors);
        }
        all
    }

    /// A chain of authorizers that the caller makes, with RBAC for escalation checks only.
    pub fn with_authorizers(
        links: Vec<Box<dyn Authorizer>>,
        cache: &Arc<WatchCache>,
    ) -> Result<Arc<Self>, store::StoreError> {
        let (links, rbac) = (RwLock::new(Arc::new(links)), Arc::new(Rbac::new(cache)?));
        Ok(Arc::new(Self { links, kinds: Vec::new(), rbac, node: None }))
    }

    /// What the chain says.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.groups.iter().any(|group| group == MASTERS_GROUP) {
            return Decision::Allowed(Reason::none());
        }
        let mut reasons = Vec::new();
        for link in self.links().iter() {
            match link.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_none() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(Reason::joined(reasons))
    }

    /// Whether the chain allows.
    pub async fn is_allowed(&self, attributes: &Attributes<'_>) -> bool {
        self.authorize(attributes).await.is_allowed()
    }

    /// As [`Self::decide`]; what is not allowed is the answer that says so: 403, or 500 where an authorizer failed.
    pub async fn require_allowed(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorize(attributes).await {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(reason) | Decision::NoOpinion(reason) => Err(forbidden::status(attributes, &reason)),
        }
    }
}

/// 403 that says who cannot do what, and why.
pub fn forbidden(attributes: &Attributes<'_>, why: String) -> Status {
    forbidden::status(attributes, &Reason::from(why))
}
