//! `kubectl set serviceaccount`

use super::{SetRun, pod_spec_mut};
use crate::{errors::CommandResult, session::Session};

/// Sets the service account of pod templates.
pub fn run(session: &Session) -> CommandResult {
    let mut run = SetRun::new(session, "serviceaccount updated", "failed to patch ServiceAccountName ")?;
    run.sends_unchanged = true;
    run.refuses_local_arguments = false;
    let Some((name, resources)) = session.arguments().split_last() else { crate::bail!("serviceaccount is required") };
    let name = name.clone();
    let infos = run.load(resources)?;
    run.change(infos, &mut |object, _| {
        let spec = pod_spec_mut(object)?;
        spec["serviceAccountName"] = name.clone().into();
        Ok(true)
    })
}
