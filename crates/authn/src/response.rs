//! What a link answers: a user, nobody, or why what was shown is not accepted.

use std::fmt;

use apiserver_core::User;

use super::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};

/// What a link says of what it was shown.
pub type AuthenticationResult = Result<Option<AuthenticationResponse>, AuthenticationErrors>;

/// Somebody whom a credential names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationResponse {
    /// Who it is.
    pub user: User,
    /// Whom the credential is for; empty: the link knows nothing of audiences.
    pub audiences: Vec<String>,
    /// What is to be said about it.
    pub notes: AuthenticationNotes,
}

impl AuthenticationResponse {
    /// Somebody of whom nothing else is to be said.
    pub fn user(user: User) -> Self {
        Self { user, ..Self::default() }
    }

    /// The same, in the group of all who are known.
    pub fn known(mut self) -> Self {
        let says = |group: &String| group == AUTHENTICATED_GROUP || group == UNAUTHENTICATED_GROUP;
        if self.user.name != ANONYMOUS_USER && !self.user.groups.iter().any(says) {
            self.user.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }
}

/// What is to be said about a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationNotes {
    /// For the audit log.
    pub annotations: Vec<(&'static str, String)>,
    /// For the client.
    pub warnings: Vec<String>,
}

impl AuthenticationNotes {
    /// Takes over others.
    pub fn add(&mut self, other: AuthenticationNotes) {
        self.annotations.extend(other.annotations);
        self.warnings.extend(other.warnings);
    }
}

/// Why nothing that was shown is accepted: for the log, and for whoever may review tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationErrors(Vec<String>);

impl AuthenticationErrors {
    /// Nothing was shown.
    pub fn none() -> Self {
        Self::default()
    }

    /// One reason.
    pub fn one(reason: impl Into<String>) -> Self {
        Self(vec![reason.into()])
    }

    /// Adds reasons that were not yet given.
    pub fn add(&mut self, other: AuthenticationErrors) {
        for reason in other.0 {
            if !self.0.contains(&reason) {
                self.0.push(reason);
            }
        }
    }

    /// Whether nothing was shown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
