//! `kubectl edit`, and `--edit` of `create`.

use crate::{errors::CommandResult, session::Session};

/// `kubectl create --edit`
pub fn run_create(_session: &Session) -> CommandResult {
    crate::bail!("create --edit is not supported by this kubectl")
}

/// `kubectl apply edit-last-applied`
pub fn run_edit_last_applied(_session: &Session) -> CommandResult {
    crate::bail!("apply edit-last-applied is not supported by this kubectl")
}
