//! Users: the authenticated identity of a request, and well-known names and groups.

use std::collections::BTreeMap;

/// User name of unauthenticated requests.
pub const ANONYMOUS_USER: &str = "system:anonymous";
/// Group of all authenticated users.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";
/// Group of unauthenticated requests.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";
/// Group whose members may do everything, whatever the authorizers decide.
pub const MASTERS_GROUP: &str = "system:masters";

/// The user info of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name, for example `system:kube-scheduler`.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Unique identity over time; empty if the authenticator has none.
    pub uid: String,
    /// Extra attributes of the authenticator, for example the credential ID.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A component of this process; it bypasses flow control.
    Component(User),
    /// An external client, possibly `system:anonymous`.
    Client(User),
}

impl Caller {
    /// The user info of the caller.
    pub fn user(&self) -> &User {
        let (Caller::Component(user) | Caller::Client(user)) = self;
        user
    }
}
