//! Waiting for objects: for deletion, creation, a condition or a value.

use std::time::{Duration, Instant};

use api::Value;

use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    resource::ResourceInfo,
    rest::{RestClient, RestRequest},
};

/// The time at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct WaitDeadline(Instant);

impl WaitDeadline {
    /// A deadline after some nanoseconds; a negative number is a week.
    pub fn after(nanos: i64) -> Self {
        let week = 168 * 3600 * 1_000_000_000;
        let nanos = u64::try_from(nanos).unwrap_or(week);
        WaitDeadline(Instant::now() + Duration::from_nanos(nanos))
    }

    /// The time left; `None` after the deadline.
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// The error of a wait that took too long.
pub fn timed_out(info: &ResourceInfo) -> CommandError {
    CommandError::new(format!("timed out waiting for the condition on {}/{}", info.mapping.resource, info.name))
}

/// The path that lists or watches one object by its name.
fn single_request(info: &ResourceInfo) -> RestRequest {
    RestRequest::get(info.mapping.path(&info.namespace, ""))
        .with_query("fieldSelector", format!("metadata.name={}", info.name))
}

/// Reads the object by listing; returns it and the version of the list.
pub fn list_single(client: &RestClient, info: &ResourceInfo) -> CommandResult<(Option<Value>, String)> {
    let list = client.send_json(single_request(info))?;
    let version = list.text("metadata.resourceVersion").to_owned();
    let mut item = list.list("items").first().cloned();
    if let Some(item) = &mut item {
        crate::resource::set_type_meta(item, &info.mapping);
    }
    Ok((item, version))
}

/// Watches one object; `visit` gets the type and object of each event and returns a value when it is satisfied.
pub fn watch_single<T>(
    client: &RestClient,
    info: &ResourceInfo,
    version: &str,
    deadline: WaitDeadline,
    visit: &mut dyn FnMut(&str, &Value) -> CommandResult<Option<T>>,
) -> CommandResult<Option<T>> {
    let request = single_request(info).with_query("watch", "true").with_query("resourceVersion", version);
    let mut stream = client.open_stream(request)?;
    while let Some(left) = deadline.left() {
        // A watch that breaks is begun again by the caller.
        let Ok(Some(event)) = stream.next_event(Some(left)) else { return Ok(None) };
        let mut object = event.get("object").cloned().unwrap_or_default();
        crate::resource::set_type_meta(&mut object, &info.mapping);
        if let Some(done) = visit(event.text("type"), &object)? {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

/// Waits until the object with this UID is gone.
pub fn wait_for_deletion(client: &RestClient, info: &ResourceInfo, uid: &str, deadline: WaitDeadline) -> CommandResult {
    loop {
        // Who may get the object may not list it; what is gone needs neither list nor watch.
        match info.fetch(client) {
            Err(error) if error.is_not_found() => return Ok(()),
            _ => {}
        }
        let (item, version) = list_single(client, info)?;
        let Some(item) = item else { return Ok(()) };
        if !uid.is_empty() && item.text("metadata.uid") != uid {
            return Ok(());
        }
        if deadline.left().is_none() {
            return Err(timed_out(info));
        }
        let done = watch_single(client, info, &version, deadline, &mut |kind, object| {
            let other = !uid.is_empty() && object.text("metadata.uid") != uid;
            Ok((kind == "DELETED" || other).then_some(()))
        })?;
        if done.is_some() {
            return Ok(());
        }
    }
}
