//! `kubectl set resources`

use api::Value;
use serde_json::json;

use super::{SetRun, pod_spec_mut, visit_containers};
use crate::{
    commands::create::parse_resource_list,
    errors::{CommandError, CommandResult},
    session::Session,
};

/// Sets requests and limits of containers.
pub fn run(session: &Session) -> CommandResult {
    let run =
        SetRun::new(session, "resource requirements updated", "failed to patch resources update to pod template ")?;
    let infos = run.load(session.arguments())?;
    let flags = &session.flags;
    if flags.bool("all") && !flags.string("selector").is_empty() {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    let (limits, requests) = (flags.string("limits"), flags.string("requests"));
    if limits.is_empty() && requests.is_empty() {
        crate::bail!("you must specify an update to requests or limits (in the form of --requests/--limits)");
    }
    let parse = |text: &str| if text.is_empty() { Ok(Value::Null) } else { parse_resource_list(text) };
    let (limits, requests) = (parse(&limits)?, parse(&requests)?);
    let pattern = flags.string("containers");
    run.change(infos, &mut |object, errors| {
        let found = visit_containers(pod_spec_mut(object)?, &pattern, &mut |container| {
            for (field, list) in [("limits", &limits), ("requests", &requests)] {
                for (name, amount) in list.as_object().into_iter().flatten() {
                    if !container["resources"].is_object() {
                        container["resources"] = json!({});
                    }
                    container["resources"][field][name] = amount.clone();
                }
            }
        });
        if !found {
            errors.push(CommandError::new(format!("error: unable to find container named {pattern}")));
        }
        Ok(found)
    })
}
