//! `kubectl certificate approve` and `deny`

use api::json::go_quote;
use serde_json::json;

use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    printers::ObjectPrinter,
    resource::{ResourceBuilder, ResourceInfo},
    rest::RestRequest,
    session::Session,
};

/// Approves or denies signing requests.
pub fn run(session: &Session, approve: bool) -> CommandResult {
    let word = if approve { "approved" } else { "denied" };
    let printer = ObjectPrinter::from_flags(&session.flags, word)?;
    let mut builder = ResourceBuilder::from_session(session)?;
    if session.arguments().is_empty() && !builder.has_files() {
        crate::bail!("one or more CSRs must be specified as <name> or -f <filename>");
    }
    builder.arguments = session.arguments().to_vec();
    builder.default_resource = "certificatesigningrequests".to_owned();
    builder.flatten = true;
    builder.latest = true;
    builder.continue_on_error = true;
    let mut found = 0;
    builder.visit(session, &mut |mut info| {
        found += 1;
        decide(session, &mut info, approve)?;
        printer.print(&info.object)
    })?;
    if found == 0 && session.flags.string("output").is_empty() {
        crate::outln!("No resources found");
    }
    Ok(())
}

fn decide(session: &Session, info: &mut ResourceInfo, approve: bool) -> CommandResult {
    let (wanted, other) = if approve { ("Approved", "Denied") } else { ("Denied", "Approved") };
    let has = |info: &ResourceInfo, kind: &str| {
        info.object.list("status.conditions").iter().any(|condition| condition.text("type") == kind)
    };
    let mut tries = 0;
    loop {
        if has(info, other) {
            crate::bail!("certificate signing request {} is already {other}", go_quote(&info.name));
        }
        if has(info, wanted) && !session.flags.bool("force") {
            return Ok(());
        }
        if !has(info, wanted) {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let (reason, message) = if approve {
                ("KubectlApprove", "This CSR was approved by kubectl certificate approve.")
            } else {
                ("KubectlDeny", "This CSR was denied by kubectl certificate deny.")
            };
            let condition =
                json!({"type": wanted, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now});
            let mut conditions = info.object.list("status.conditions").to_vec();
            conditions.push(condition);
            crate::object::set_path(&mut info.object, "status.conditions", conditions.into());
        }
        let request = RestRequest::new(http::Method::PUT, format!("{}/approval", info.path())).with_json(&info.object);
        match session.client()?.send_json(request) {
            Ok(updated) => {
                info.object = updated;
                return Ok(());
            }
            Err(error) if error.is_conflict() && tries < 10 => {
                tries += 1;
                info.load(session.client()?)?;
            }
            Err(error) => return Err::<(), CommandError>(error),
        }
    }
}
