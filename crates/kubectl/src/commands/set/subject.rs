//! `kubectl set subject`

use api::Value;
use serde_json::json;

use super::SetRun;
use crate::{errors::CommandResult, object::ObjectFields, session::Session};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Adds subjects to role bindings.
pub fn run(session: &Session) -> CommandResult {
    let run = SetRun::new(session, "subjects updated", "failed to patch subjects to rolebinding: ")?;
    let flags = &session.flags;
    let (users, groups, accounts) = (flags.strings("user"), flags.strings("group"), flags.strings("serviceaccount"));
    let infos = run.load(session.arguments())?;
    if flags.bool("all") && !flags.string("selector").is_empty() {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    if users.is_empty() && groups.is_empty() && accounts.is_empty() {
        crate::bail!("you must specify at least one value of user, group or serviceaccount");
    }
    let mut subjects: Vec<Value> = Vec::new();
    for account in &accounts {
        let parts: Vec<&str> = account.split(':').collect();
        if parts.len() != 2 || parts[1].is_empty() {
            crate::bail!("serviceaccount must be <namespace>:<name>");
        }
    }
    let subject = |kind: &str, name: &String| json!({"kind": kind, "apiGroup": GROUP, "name": name});
    subjects.extend(users.iter().map(|name| subject("User", name)));
    subjects.extend(groups.iter().map(|name| subject("Group", name)));
    let namespace = session.namespace()?.0;
    for account in &accounts {
        let (own, name) = account.split_once(':').unwrap_or(("", account));
        let own = if own.is_empty() { namespace.as_str() } else { own };
        subjects.push(json!({"kind": "ServiceAccount", "namespace": own, "name": name}));
    }
    run.change(infos, &mut |object, _| {
        if !["RoleBinding", "ClusterRoleBinding"].contains(&object.text("kind")) {
            crate::bail!("setting subjects is only supported for RoleBinding/ClusterRoleBinding");
        }
        let mut all = object.list("subjects").to_vec();
        let mut changed = false;
        for subject in &subjects {
            if !all.iter().any(|known| known == subject) {
                all.push(subject.clone());
                changed = true;
            }
        }
        object["subjects"] = all.into();
        Ok(changed)
    })
}
