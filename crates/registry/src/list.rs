//! List requests: pages of a snapshot of the watch cache.

use std::sync::Arc;

use api::{Value, status::Status};
use apiserver_core::{document, request::ResourceRequest};
use store::{CachedItem, Revision, SelectionBloomFilter, Snapshot};

use super::{
    Registry,
    continue_token::{self, ContinueToken},
    list_options::ListOptions,
    selection::SelectionPredicate,
    status_from_store_error,
};

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
     the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
     Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
     deleted between the time the first chunk was returned and now may show up in the list.";

/// One page of a list.
pub struct ListPage {
    /// The objects in the order of their keys.
    pub items: Vec<Arc<CachedItem>>,
    /// The `resourceVersion` of the list.
    pub revision: Revision,
    /// The continue token; `None` on the last page.
    pub continue_token: Option<String>,
    /// Number of objects on later pages; `None` with a selector.
    pub remaining: Option<usize>,
    /// The objects as a conversion webhook returned them, if one converts them.
    pub converted: Option<Vec<Value>>,
}

impl Registry {
    /// Lists the page that the request selects.
    pub async fn list(&self, request: &ResourceRequest) -> Result<ListPage, Status> {
        let options = ListOptions::from_request(request)?;
        let prefix = document::storage_key(&request.resource, &request.namespace, "");
        let start = options.list_start(&prefix)?;
        let gone = |error| expired_status(request, &prefix, start.after.as_deref(), error);
        if let store::ResourceVersionMatch::Exactly(revision) = start.at {
            self.crds().check_revision(&request.resource, revision).map_err(gone)?;
        }
        let snapshot = self.cache().snapshot(&prefix, start.at).await.map_err(gone)?;
        // A list from the cache is not paginated.
        let limit = options.limit.filter(|_| start.at != store::ResourceVersionMatch::Any).unwrap_or(usize::MAX);
        let (selection, from) =
            (&options.selection, PageStart { prefix: &prefix, snapshot: &snapshot, after: start.after });
        let list = match apiextensions::CustomResourceDefinitions::is_converted_by_webhook(&request.resource) {
            true => self.converted_page(request, selection, &from, limit).await?,
            false => {
                let selects = |item: &CachedItem| selection.matches(item);
                from.take_page(selection.is_everything(), limit, selection.bloom_filter(), selects)
            }
        };
        if list.continue_token.is_some() {
            self.cache().keep_snapshot(&prefix, &snapshot);
        }
        Ok(list)
    }

    /// A page of objects that a conversion webhook converts. Selectors apply to the converted objects.
    async fn converted_page(
        &self,
        request: &ResourceRequest,
        selection: &SelectionPredicate,
        from: &PageStart<'_>,
        limit: usize,
    ) -> Result<ListPage, Status> {
        let everything = selection.is_everything();
        let most = if everything { limit } else { usize::MAX };
        let mut list =
            from.take_page(everything, most, SelectionBloomFilter::default(), |item| selection.may_match(item));
        let stored = list.items.iter().map(|item| document::decode_record(&item.record));
        let stored = stored.collect::<Result<Vec<Value>, _>>().map_err(Status::internal_error)?;
        let shown = self.crds().convert_stored(&request.resource, stored).await?;
        let selected =
            |(item, object): &(Arc<CachedItem>, Value)| everything || selection.matches_converted(item, object);
        let mut both: Vec<(Arc<CachedItem>, Value)> = list.items.into_iter().zip(shown).filter(selected).collect();
        if both.len() > limit {
            both.truncate(limit);
            list.continue_token = both.last().and_then(|(last, _)| from.continue_token(last));
        }
        let (items, converted) = both.into_iter().unzip();
        Ok(ListPage { items, converted: Some(converted), ..list })
    }

    /// Returns an error if the `resourceVersion` of a get request is newer than the store's revision.
    pub async fn check_min_revision(&self, request: &ResourceRequest) -> Result<(), Status> {
        let text = request.query.get("resourceVersion").unwrap_or_default();
        let Some(requested) = ListOptions::parse_revision(text)? else { return Ok(()) };
        let current =
            self.store().revision().await.map_err(|error| status_from_store_error(&request.resource, "", error))?;
        if requested > current { Err(Status::resource_version_too_large(requested, current)) } else { Ok(()) }
    }
}

/// A snapshot and the position where a page starts.
struct PageStart<'a> {
    prefix: &'a str,
    snapshot: &'a Snapshot,
    after: Option<String>,
}

impl PageStart<'_> {
    fn take_page(
        &self,
        everything: bool,
        limit: usize,
        required: SelectionBloomFilter,
        selects: impl Fn(&CachedItem) -> bool,
    ) -> ListPage {
        let candidates = self.snapshot.candidates_after(self.after.as_deref(), required);
        let selected = |item: &&Arc<CachedItem>| everything || selects(item);
        let page: Vec<Arc<CachedItem>> = candidates.filter(selected).take(limit).cloned().collect();
        let mut remaining = 0;
        if let Some(last) = page.last().filter(|_| page.len() == limit) {
            let rest = self.snapshot.items_after(Some(&last.record.key));
            // `remainingItemCount` is set only without selectors.
            remaining = if everything { rest.count() } else { rest.take(1).count() };
        }
        let next = page.last().filter(|_| remaining > 0).and_then(|last| self.continue_token(last));
        let remaining = everything.then_some(remaining);
        ListPage { items: page, revision: self.snapshot.revision, continue_token: next, remaining, converted: None }
    }

    /// The continue token of the page after `last`.
    fn continue_token(&self, last: &CachedItem) -> Option<String> {
        let after = last.record.key.strip_prefix(self.prefix)?.to_owned();
        Some(continue_token::encode_continue_token(&ContinueToken { revision: Some(self.snapshot.revision), after }))
    }
}

fn expired_status(request: &ResourceRequest, prefix: &str, after: Option<&str>, error: store::StoreError) -> Status {
    let store::StoreError::Compacted { .. } = error else {
        return status_from_store_error(&request.resource, "", error);
    };
    match after.and_then(|after| after.strip_prefix(prefix)) {
        Some(after) => {
            let token =
                continue_token::encode_continue_token(&ContinueToken { revision: None, after: after.to_owned() });
            Status { continue_token: Some(token), ..Status::resource_expired(INCONSISTENT) }
        }
        None => Status::resource_expired("The resourceVersion for the provided list is too old."),
    }
}
