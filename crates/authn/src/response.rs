//! The result of authentication: a response, no opinion, or errors.

use std::fmt;

use apiserver_core::User;

use super::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};

/// The result of an authenticator.
pub type AuthenticationResult = Result<Option<AuthenticationResponse>, AuthenticationErrors>;

/// The user that a credential identifies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationResponse {
    /// User info.
    pub user: User,
    /// Audiences of the credential; empty if the authenticator is audience-agnostic.
    pub audiences: Vec<String>,
    /// Audit annotations and warnings.
    pub notes: AuthenticationNotes,
}

impl AuthenticationResponse {
    /// A response without audiences and notes.
    pub fn for_user(user: User) -> Self {
        Self { user, ..Self::default() }
    }

    /// Adds the group `system:authenticated`, unless the user is anonymous or has it.
    pub fn with_authenticated_group(mut self) -> Self {
        let is_authentication_group = |group: &String| group == AUTHENTICATED_GROUP || group == UNAUTHENTICATED_GROUP;
        if self.user.name != ANONYMOUS_USER && !self.user.groups.iter().any(is_authentication_group) {
            self.user.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }
}

/// Audit annotations and warnings of an authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationNotes {
    /// Audit annotations.
    pub annotations: Vec<(&'static str, String)>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl AuthenticationNotes {
    /// Adds the notes of `other`.
    pub fn merge(&mut self, other: AuthenticationNotes) {
        self.annotations.extend(other.annotations);
        self.warnings.extend(other.warnings);
    }
}

/// The reasons why credentials are invalid, for the log and for TokenReviews.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationErrors(Vec<String>);

impl AuthenticationErrors {
    /// No credential was presented.
    pub fn none() -> Self {
        Self::default()
    }

    /// A single error.
    pub fn single(error: impl Into<String>) -> Self {
        Self(vec![error.into()])
    }

    /// Adds errors, without duplicates.
    pub fn merge(&mut self, other: AuthenticationErrors) {
        for error in other.0 {
            if !self.0.contains(&error) {
                self.0.push(error);
            }
        }
    }

    /// Whether no credential was presented.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for AuthenticationErrors {
    fn from(error: T) -> Self {
        Self::single(error)
    }
}

impl fmt::Display for AuthenticationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "[{}]", many.join(", ")),
        }
    }
}
