//! Lists: pages of a snapshot, and which revision they are true for.

use std::sync::Arc;

use api::{Value, status::Status};
use store::{Item, Revision, Snapshot};

use super::{
    Registry, failed,
    list_options::{ListOptions, Start},
    list_token::{self, Token},
};
use crate::{document, request::Target};

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
     the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
     Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
     deleted between the time the first chunk was returned and now may show up in the list.";

/// One page of objects.
pub struct List {
    /// In the order of their names.
    pub items: Vec<Arc<Item>>,
    /// The revision that the whole list is true for.
    pub revision: Revision,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// How many objects follow; unknown with a selector.
    pub remaining: Option<usize>,
    /// The objects, where somebody else had to convert them.
    pub converted: Option<Vec<Value>>,
}

impl Registry {
    /// A list as its query asks for it.
    pub async fn list(&self, target: &Target) -> Result<List, Status> {
        let options = ListOptions::of(target)?;
        let prefix = document::key(&target.resource, &target.namespace, "");
        let start = options.start(&prefix)?;
        let reached = match start.at {
            store::At::Exactly(revision) => self.custom().reaches(&target.resource, revision),
            _ => Ok(()),
        };
        let snapshot = match reached {
            Ok(()) => self.cache().snapshot(&prefix, start.at).await,
            Err(error) => Err(error),
        };
        let snapshot = snapshot.map_err(|error| gone(target, &prefix, &start, error))?;
        // Whatever the cache has comes as a whole.
        let limit = options.limit.filter(|_| start.at != store::At::Any).unwrap_or(usize::MAX);
        let mut list = page(&options, &prefix, &snapshot, start.after.as_deref(), limit);
        if Self::is_converted_by_webhook(&target.resource) {
            let stored = list.items.iter().map(|item| document::object(&item.record));
            let stored = stored.collect::<Result<Vec<Value>, _>>().map_err(Status::internal)?;
            list.converted = Some(self.in_version(&target.resource, stored).await?);
        }
        if list.next.is_some() {
            self.cache().keep(&prefix, &snapshot);
        }
        Ok(list)
    }

    /// Refuses a read of one object that wants a revision that is not there yet.
    pub async fn has_reached(&self, target: &Target) -> Result<(), Status> {
        let text = target.query.get("resourceVersion").unwrap_or_default();
        let Some(requested) = ListOptions::parsed_revision(text)? else { return Ok(()) };
        let current = self.store().revision().await.map_err(|error| failed(&target.resource, "", error))?;
        if requested > current { Err(Status::future_revision(requested, current)) } else { Ok(()) }
    }
}

fn page(options: &ListOptions, prefix: &str, snapshot: &Snapshot, after: Option<&str>, limit: usize) -> List {
    let selection = &options.selection;
    let everything = selection.is_everything();
    let mut items = snapshot.after(after);
    let selected = |item: &&Arc<Item>| everything || selection.matches(item);
    let page: Vec<Arc<Item>> = items.by_ref().filter(selected).take(limit).cloned().collect();
    let mut remaining = 0;
    if page.len() == limit {
        // How many there are is told only where all of them would be shown.
        remaining = if everything { items.count() } else { items.take(1).count() };
    }
    let last = page.last().filter(|_| remaining > 0).and_then(|last| last.record.key.strip_prefix(prefix));
    let next = last.map(|key| list_token::write(&Token { revision: Some(snapshot.revision), after: key.to_owned() }));
    List { items: page, revision: snapshot.revision, next, remaining: everything.then_some(remaining), converted: None }
}

fn gone(target: &Target, prefix: &str, start: &Start, error: store::Error) -> Status {
    let store::Error::Compacted { .. } = error else { return failed(&target.resource, "", error) };
    match start.after.as_deref().and_then(|after| after.strip_prefix(prefix)) {
        Some(after) => {
            let token = list_token::write(&Token { revision: None, after: after.to_owned() });
            Status { next: Some(token), ..Status::expired(INCONSISTENT) }
        }
        None => Status::expired("The resourceVersion for the provided list is too old."),
    }
}
