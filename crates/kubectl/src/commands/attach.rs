//! `kubectl attach`

use api::Value;

use crate::{errors::CommandResult, session::Session};

/// Attaches to a pod that `run` made.
pub fn attach_to_new_pod(_session: &Session, _pod: &Value, _restart: &str) -> CommandResult {
    crate::bail!("attaching to containers is not supported by this kubectl")
}
