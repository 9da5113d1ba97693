//! `kubectl get --watch`

use api::Value;

use super::{WatchOutput, watch_request, watch_version};
use crate::{
    errors::{CommandError, CommandResult},
    object::{self, ObjectFields},
    resource::ResourceBuilder,
    rest::BodyStream,
    session::Session,
};

/// Prints objects and then their changes, until the watch ends.
pub fn watch(session: &Session, mut builder: ResourceBuilder) -> CommandResult {
    builder.flatten = false;
    builder.continue_on_error = false;
    builder.single_type = true;
    let result = builder.build(session)?;
    if session.flags.bool("ignore-not-found")
        && result.errors.iter().all(CommandError::is_not_found)
        && result.infos.is_empty()
    {
        return Ok(());
    }
    CommandError::join(result.errors)?;
    let Some(info) = result.infos.first() else { crate::bail!("no resources found") };
    if builder.has_files() && object::is_list(&info.object) {
        crate::bail!(
            "watch is only supported on individual resources and resource collections, but a list of resources is found"
        );
    }
    let mut output = WatchOutput::new(session, info)?;
    let named = !info.name.is_empty();
    let only = session.flags.bool("watch-only");
    if !only {
        for info in &result.infos {
            if object::is_list(&info.object) {
                for item in info.object.list("items") {
                    let mut item = item.clone();
                    crate::resource::set_type_meta(&mut item, &info.mapping);
                    output.print(&item, "ADDED")?;
                }
            } else {
                output.print(&info.object, "ADDED")?;
            }
        }
    }
    let several = result.infos.iter().filter(|info| !info.name.is_empty()).count();
    if several > 1 && builder.has_files() {
        crate::bail!(
            "watch is only supported on individual resources and resource collections - {several} resources were found"
        );
    }
    if several > 1 {
        crate::bail!("you may only watch a single resource or type of resource at a time");
    }
    let version = watch_version(&info.object, named);
    let stream = session.client()?.open_stream(watch_request(&builder, info, &version))?;
    // A named object comes once more as the first event.
    follow(stream, &mut output, named)
}

fn follow(mut stream: BodyStream, output: &mut WatchOutput, mut skip: bool) -> CommandResult {
    loop {
        let event = match stream.next_event(None) {
            Ok(Some(event)) => event,
            // A watch that ends, or runs into its time limit, is done.
            Ok(None) | Err(_) => return Ok(()),
        };
        let kind = event.text("type");
        let value = event.get("object").unwrap_or(&Value::Null);
        match kind {
            "ERROR" => {
                let status = crate::errors::StatusError { status: value.clone() };
                return Err(CommandError::Status(Box::new(status)));
            }
            "BOOKMARK" => {}
            _ if std::mem::take(&mut skip) => {}
            _ => output.print(value, kind)?,
        }
    }
}
