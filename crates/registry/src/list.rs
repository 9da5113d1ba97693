//! Lists: pages of a snapshot, and which revision they are true for.

use std::sync::Arc;

use api::{Value, status::Status};
use apiserver_core::{document, request::ResourceRequest};
use store::{CachedItem, Revision, Snapshot};

use super::{Registry, failed, list_options::ListOptions, list_token, list_token::Token, selection::Selection};

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
     the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
     Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
     deleted between the time the first chunk was returned and now may show up in the list.";

/// One page of objects.
pub struct List {
    /// In the order of their names.
    pub items: Vec<Arc<CachedItem>>,
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
    pub async fn list(&self, target: &ResourceRequest) -> Result<List, Status> {
        let options = ListOptions::of(target)?;
        let prefix = document::storage_key(&target.resource, &target.namespace, "");
        let start = options.start(&prefix)?;
        let gone = |error| gone(target, &prefix, start.after.as_deref(), error);
        if let store::ResourceVersionMatch::Exactly(revision) = start.at {
            self.custom().reaches(&target.resource, revision).map_err(gone)?;
        }
        let snapshot = self.cache().snapshot(&prefix, start.at).await.map_err(gone)?;
        // Whatever the cache has comes as a whole.
        let limit = options.limit.filter(|_| start.at != store::ResourceVersionMatch::Any).unwrap_or(usize::MAX);
        let (selection, from) = (&options.selection, From { prefix: &prefix, snapshot: &snapshot, after: start.after });
        let list = match apiextensions::CustomResourceDefinitions::is_converted_by_webhook(&target.resource) {
            true => self.converted_page(target, selection, &from, limit).await?,
            false => from.page(selection.is_everything(), limit, |item| selection.matches(item)),
        };
        if list.next.is_some() {
            self.cache().keep_snapshot(&prefix, &snapshot);
        }
        Ok(list)
    }

    /// A page of what somebody else converts. What is selected of it is known when it is converted.
    async fn converted_page(
        &self,
        target: &ResourceRequest,
        selection: &Selection,
        from: &From<'_>,
        limit: usize,
    ) -> Result<List, Status> {
        let everything = selection.is_everything();
        let most = if everything { limit } else { usize::MAX };
        let mut list = from.page(everything, most, |item| selection.may_match(item));
        let stored = list.items.iter().map(|item| document::decode_record(&item.record));
        let stored = stored.collect::<Result<Vec<Value>, _>>().map_err(Status::internal_error)?;
        let shown = self.custom().in_version(&target.resource, stored).await?;
        let selected =
            |(item, object): &(Arc<CachedItem>, Value)| everything || selection.matches_converted(item, object);
        let mut both: Vec<(Arc<CachedItem>, Value)> = list.items.into_iter().zip(shown).filter(selected).collect();
        if both.len() > limit {
            both.truncate(limit);
            list.next = both.last().and_then(|(last, _)| from.token(last));
        }
        let (items, converted) = both.into_iter().unzip();
        Ok(List { items, converted: Some(converted), ..list })
    }

    /// Refuses a read of one object that wants a revision that is not there yet.
    pub async fn has_reached(&self, target: &ResourceRequest) -> Result<(), Status> {
        let text = target.query.get("resourceVersion").unwrap_or_default();
        let Some(requested) = ListOptions::parsed_revision(text)? else { return Ok(()) };
        let current = self.store().revision().await.map_err(|error| failed(&target.resource, "", error))?;
        if requested > current { Err(Status::resource_version_too_large(requested, current)) } else { Ok(()) }
    }
}

/// Where a page begins.
struct From<'a> {
    prefix: &'a str,
    snapshot: &'a Snapshot,
    after: Option<String>,
}

impl From<'_> {
    fn page(&self, everything: bool, limit: usize, selects: impl Fn(&CachedItem) -> bool) -> List {
        let mut items = self.snapshot.items_after(self.after.as_deref());
        let selected = |item: &&Arc<CachedItem>| everything || selects(item);
        let page: Vec<Arc<CachedItem>> = items.by_ref().filter(selected).take(limit).cloned().collect();
        let mut remaining = 0;
        if page.len() == limit {
            // How many there are is told only where all of them would be shown.
            remaining = if everything { items.count() } else { items.take(1).count() };
        }
        let next = page.last().filter(|_| remaining > 0).and_then(|last| self.token(last));
        let remaining = everything.then_some(remaining);
        List { items: page, revision: self.snapshot.revision, next, remaining, converted: None }
    }

    /// What asks for the page after an object.
    fn token(&self, last: &CachedItem) -> Option<String> {
        let after = last.record.key.strip_prefix(self.prefix)?.to_owned();
        Some(list_token::write(&Token { revision: Some(self.snapshot.revision), after }))
    }
}

fn gone(target: &ResourceRequest, prefix: &str, after: Option<&str>, error: store::StoreError) -> Status {
    let store::StoreError::Compacted { .. } = error else { return failed(&target.resource, "", error) };
    match after.and_then(|after| after.strip_prefix(prefix)) {
        Some(after) => {
            let token = list_token::write(&Token { revision: None, after: after.to_owned() });
            Status { continue_token: Some(token), ..Status::resource_expired(INCONSISTENT) }
        }
        None => Status::resource_expired("The resourceVersion for the provided list is too old."),
    }
}
