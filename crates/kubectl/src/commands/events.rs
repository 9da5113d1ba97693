//! `kubectl events`

use api::Value;

use crate::{
    describe::sort_events,
    errln,
    errors::{CommandError, CommandResult, PartialResource},
    object::{ObjectFields, namespace_of},
    output::write_out,
    printers::ObjectPrinter,
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
};

/// Lists events.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let (namespace, _) = session.namespace()?;
    let all = flags.bool("all-namespaces");
    let types = flags.strings("types");
    if types.iter().any(|kind| !["normal", "warning"].contains(&kind.to_lowercase().as_str())) {
        crate::bail!("valid --types are Normal or Warning");
    }
    let mut selector = String::new();
    let target = flags.string("for");
    if !target.is_empty() {
        let Some((resource, name)) =
            target.split_once('/').filter(|(resource, name)| !resource.is_empty() && !name.is_empty())
        else {
            crate::bail!("--for must be in resource/name form");
        };
        let mapping = session.look_up(|data| data.find_argument(resource))?;
        let Some(mapping) = mapping else {
            return Err(CommandError::NoResourceMatch(PartialResource {
                resource: resource.to_owned(),
                ..Default::default()
            }));
        };
        selector = format!(
            "involvedObject.kind={},involvedObject.apiVersion={},involvedObject.name={name}",
            mapping.kind,
            mapping.api_version()
        );
    }
    let printer = ObjectPrinter::from_flags(flags, "")?;
    let path = if all { "/api/v1/events".to_owned() } else { format!("/api/v1/namespaces/{namespace}/events") };
    let request = |path: &str| RestRequest::get(path).with_optional("fieldSelector", &selector);
    let list = session.client()?.send_json(request(&path).with_query("limit", flags.int("chunk-size").to_string()))?;
    let mut events: Vec<Value> = list.list("items").to_vec();
    let wanted =
        |event: &Value| types.is_empty() || types.iter().any(|kind| kind.eq_ignore_ascii_case(event.text("type")));
    events.retain(wanted);
    let mut table = EventTable { writer: TabWriter::for_tables(), all, headers: !flags.bool("no-headers") };
    if flags.bool("watch") {
        events.iter().for_each(|event| table.print(std::slice::from_ref(event)));
        let version = list.text("metadata.resourceVersion");
        let watch = request(&path).with_query("watch", "true").with_query("resourceVersion", version);
        let mut stream = session.client()?.open_stream(watch)?;
        while let Ok(Some(event)) = stream.next_event(None) {
            if event.text("type") != "DELETED" && wanted(&event["object"]) {
                table.print(std::slice::from_ref(&event["object"]));
            }
        }
        return Ok(());
    }
    if events.is_empty() {
        match all {
            true => errln!("No events found."),
            false => errln!("No events found in {namespace} namespace."),
        }
        return Ok(());
    }
    sort_events(&mut events);
    if !printer.is_message() {
        events.retain(api::Value::is_object);
        for event in &mut events {
            event["kind"] = "Event".into();
            event["apiVersion"] = "v1".into();
        }
        let list = serde_json::json!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": events});
        // A list has no name.
        return if printer.prints_names() { Ok(()) } else { printer.print_typed(&list) };
    }
    table.print(&events);
    Ok(())
}

/// The table of events.
struct EventTable {
    writer: TabWriter,
    all: bool,
    headers: bool,
}

impl EventTable {
    fn print(&mut self, events: &[Value]) {
        let namespace = if self.all { "NAMESPACE\t" } else { "" };
        if std::mem::take(&mut self.headers) {
            self.writer.push(&format!("{namespace}LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n"));
        }
        for event in events {
            let namespace = if self.all { format!("{}\t", namespace_of(event)) } else { String::new() };
            self.writer.push(&format!(
                "{namespace}{}\t{}\t{}\t{}/{}\t{}\n",
                crate::describe::event_interval(event),
                event.text("type"),
                event.text("reason"),
                event.text("involvedObject.kind"),
                event.text("involvedObject.name"),
                event.text("message").trim()
            ));
        }
        write_out(&self.writer.flush());
    }
}
