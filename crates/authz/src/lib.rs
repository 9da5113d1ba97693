//! Authorization: a union of authorizers. The first that allows or denies decides; a request without a decision is
//! forbidden.
//!
//! The pipeline authorizes every request; reviews, impersonation and admission plug-ins use the same [`Authorizers`].
//! Reasons are formatted only when they are read.

mod abac;
mod always;
pub mod bootstrap_policy;
pub mod config;
mod escalation_check;
mod forbidden;
mod node;
mod options;
mod rbac;
mod reason;
mod request;
pub mod webhook;

use std::sync::{Arc, PoisonError, RwLock};

pub use abac::{AbacPolicies, PolicyFileError};
use api::status::Status;
pub use apiserver_core::user::MASTERS_GROUP;
use apiserver_core::{User, attributes::Attributes};
use async_trait::async_trait;
pub use escalation_check::{EscalationAttributes, EscalationCheck};
pub use node::{POD_SECRETS, node_name};
pub use options::{AuthorizationMode, AuthorizationOptions};
pub use rbac::{PolicyRule, RbacAuthorizer, escalation};
pub use reason::{Reason, aggregate_errors};
use store::WatchCache;
pub use webhook::WebhookConfig;

/// The decision of an authorizer.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Allowed; later authorizers are not called.
    Allowed(Reason),
    /// Denied; later authorizers are not called.
    Denied(Reason),
    /// Undecided; the next authorizer is called.
    NoOpinion(Reason),
}

impl Decision {
    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allowed(_))
    }

    /// The reason of the decision.
    pub fn reason(&self) -> &Reason {
        let (Decision::Allowed(reason) | Decision::Denied(reason) | Decision::NoOpinion(reason)) = self;
        reason
    }
}

/// An authorization mode.
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Decides whether the user may make the request.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// Returns the rules of a user in a namespace, as far as they can be enumerated.
    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules;
}

/// The rules of a user.
#[derive(Clone, Debug, Default)]
pub struct ResolvedRules {
    /// The rules that allow something.
    pub rules: Vec<PolicyRule>,
    /// Whether further requests may be allowed.
    pub incomplete: bool,
    /// Errors of the enumeration.
    pub errors: Vec<String>,
}

/// An authorization mode that a reloaded configuration cannot add.
#[derive(Debug, thiserror::Error)]
#[error("authorizer type {0} is not allowed if it was not enabled at initial server startup")]
pub struct ModeNotEnabled(&'static str);

/// The configured authorizers, which a reloaded configuration replaces.
pub struct Authorizers {
    authorizers: RwLock<Arc<Vec<Box<dyn Authorizer>>>>,
    /// The modes at startup; some cannot be enabled later.
    kinds: Vec<&'static str>,
    /// Present also without the mode RBAC, for escalation checks.
    rbac: Arc<RbacAuthorizer>,
    node: Option<Arc<node::NodeAuthorizer>>,
}

impl Authorizers {
    /// Builds the authorizers of the configured modes over the objects in the watch cache.
    pub fn new(settings: &AuthorizationOptions, cache: &Arc<WatchCache>) -> Result<Arc<Self>, store::StoreError> {
        let kinds: Vec<&str> = settings.modes.iter().map(AuthorizationMode::mode_name).collect();
        let node = if kinds.contains(&"Node") { Some(Arc::new(node::NodeAuthorizer::new(cache)?)) } else { None };
        let rbac = Arc::new(RbacAuthorizer::new(cache)?);
        let new = Self { authorizers: RwLock::default(), kinds, rbac, node };
        new.replace_modes(&settings.modes).map_err(|error| store::StoreError::Unusable(error.to_string()))?;
        Ok(Arc::new(new))
    }

    /// Replaces the authorizers. RBAC, ABAC and Node are available only if they were enabled at startup.
    pub fn replace_modes(&self, modes: &[AuthorizationMode]) -> Result<(), ModeNotEnabled> {
        let not_enabled = |mode: &AuthorizationMode| ModeNotEnabled(mode.mode_name());
        let mut authorizers: Vec<Box<dyn Authorizer>> = Vec::new();
        for mode in modes {
            if matches!(mode, AuthorizationMode::Abac(_) | AuthorizationMode::Rbac)
                && !self.kinds.contains(&mode.mode_name())
            {
                return Err(not_enabled(mode));
            }
            authorizers.push(match mode {
                AuthorizationMode::AlwaysAllow => Box::new(always::AlwaysAllowAuthorizer),
                AuthorizationMode::AlwaysDeny => Box::new(always::AlwaysDenyAuthorizer),
                AuthorizationMode::Webhook(webhook) => Box::new(webhook::WebhookAuthorizer::new(webhook.clone())),
                AuthorizationMode::Abac(policies) => Box::new(policies.clone()),
                AuthorizationMode::Rbac => Box::new(self.rbac.clone()),
                AuthorizationMode::Node => Box::new(self.node.clone().ok_or_else(|| not_enabled(mode))?),
            });
        }
        *self.authorizers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(authorizers);
        Ok(())
    }

    fn current_authorizers(&self) -> Arc<Vec<Box<dyn Authorizer>>> {
        self.authorizers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The RBAC authorizer.
    pub fn rbac(&self) -> &RbacAuthorizer {
        &self.rbac
    }

    /// Returns the rules of a user in a namespace, from all authorizers.
    pub fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut all = ResolvedRules::default();
        for authorizer in self.current_authorizers().iter() {
            let ResolvedRules { rules, incomplete, errors } = authorizer.rules_for(user, namespace);
            all.rules.extend(rules);
            all.incomplete |= incomplete;
            all.errors.extend(errors);
        }
        all
    }

    /// Uses the given authorizers, with RBAC for escalation checks only.
    pub fn with_authorizers(
        authorizers: Vec<Box<dyn Authorizer>>,
        cache: &Arc<WatchCache>,
    ) -> Result<Arc<Self>, store::StoreError> {
        let (authorizers, rbac) = (RwLock::new(Arc::new(authorizers)), Arc::new(RbacAuthorizer::new(cache)?));
        Ok(Arc::new(Self { authorizers, kinds: Vec::new(), rbac, node: None }))
    }

    /// Returns the decision of the first authorizer with an opinion.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.groups.iter().any(|group| group == MASTERS_GROUP) {
            return Decision::Allowed(Reason::none());
        }
        let mut reasons = Vec::new();
        for authorizer in self.current_authorizers().iter() {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_none() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return decision,
            }
        }
        Decision::NoOpinion(Reason::join(reasons))
    }

    /// Whether the request is allowed.
    pub async fn check_access(&self, attributes: &Attributes<'_>) -> bool {
        self.authorize(attributes).await.is_allowed()
    }

    /// Like [`Self::authorize`]; a request that is not allowed is 403, or 500 if an authorizer failed.
    pub async fn require_allowed(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorize(attributes).await {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(reason) | Decision::NoOpinion(reason) => {
                Err(forbidden::forbidden_status(attributes, &reason))
            }
        }
    }
}

/// Returns the 403 status of a request with a reason.
pub fn forbidden_with_reason(attributes: &Attributes<'_>, why: String) -> Status {
    forbidden::forbidden_status(attributes, &Reason::from(why))
}
