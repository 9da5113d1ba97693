//! The values of the authorizer library: the authorizer, checks under construction, and decisions.

use std::{fmt, sync::Arc};

/// Decides the authorization checks of an expression, on behalf of the user who sent the admission request.
pub trait Authorizer: Send + Sync {
    /// Returns the decision for a check.
    fn authorize_check(&self, check: &AuthorizationCheck<'_>) -> AuthorizationDecision;
}

/// An authorization check.
#[derive(Debug)]
pub struct AuthorizationCheck<'a> {
    /// The service account (namespace and name) to check instead of the user.
    pub service_account: Option<(&'a str, &'a str)>,
    /// The path or resource.
    pub target: &'a CheckTarget,
    /// The request verb.
    pub verb: &'a str,
}

/// The target of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckTarget {
    /// A non-resource path.
    Path(String),
    /// A resource.
    Resource(ResourceAttributes),
}

/// The resource attributes of a check; unset attributes are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes {
    /// The API group.
    pub group: String,
    /// The plural resource name.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object name.
    pub name: String,
    /// The field selector.
    pub field_selector: String,
    /// The label selector.
    pub label_selector: String,
}

/// The authorizer's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationDecision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason for the decision.
    pub reason: String,
    /// The error of the authorizer.
    pub error: Option<String>,
}

/// The authorizer, and the service account that its checks are made for instead of the user.
#[derive(Clone)]
pub struct AuthorizerValue {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<(String, String)>,
}

impl PartialEq for AuthorizerValue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.authorizer, &other.authorizer) && self.service_account == other.service_account
    }
}

impl fmt::Debug for AuthorizerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizerValue").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

/// An authorization check under construction.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCheck {
    authorizer: AuthorizerValue,
    target: CheckTarget,
}

impl AuthorizerValue {
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, service_account: None }
    }

    pub(crate) fn with_service_account(&self, namespace: &str, name: &str) -> Self {
        Self { authorizer: self.authorizer.clone(), service_account: Some((namespace.into(), name.into())) }
    }

    pub(crate) fn start_check(&self, target: CheckTarget) -> PendingCheck {
        PendingCheck { authorizer: self.clone(), target }
    }
}

impl PendingCheck {
    /// Asks the authorizer for its decision.
    pub(crate) fn authorize(&self, verb: &str) -> AuthorizationDecision {
        let account = self.authorizer.service_account.as_ref();
        let service_account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let check = AuthorizationCheck { service_account, target: &self.target, verb };
        self.authorizer.authorizer.authorize_check(&check)
    }

    pub(crate) fn with_resource(&self, change: impl FnOnce(&mut ResourceAttributes)) -> Self {
        let mut check = self.clone();
        if let CheckTarget::Resource(resource) = &mut check.target {
            change(resource);
        }
        check
    }
}
