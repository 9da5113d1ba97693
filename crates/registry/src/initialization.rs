//! Lets create requests wait for initializers.

use api::{Value, convert, meta, status::Status};
use apiserver_core::{
    document,
    initializers::{includes_pending, is_pending, rejection_status},
    request::ResourceRequest,
};
use store::{CacheWatcher, CachedChange};

use crate::Registry;

impl Registry {
    /// Waits until a created object is initialized and returns it; 504 after the timeout.
    pub async fn wait_for_initialization(&self, request: &ResourceRequest, object: Value) -> Result<Value, Status> {
        if !is_pending(&object) || includes_pending(request) {
            return Ok(object);
        }
        let key = document::storage_key(&request.resource, meta::namespace(&object), meta::name(&object));
        let after = meta::string_at(&object, &["metadata", "resourceVersion"]).parse().unwrap_or_default();
        let watcher = self.cache().watch_prefix(&key, after).map_err(Status::internal_error)?;
        let became = wait_until_visible(request, watcher, &key);
        tokio::time::timeout(self.initialization_timeout(), became).await.unwrap_or_else(|_| {
            let (resource, name) = (request.resource.qualified_name(), meta::name(&object));
            let message = format!("Timeout: server has timed out waiting for the initialization of {resource} {name}");
            Err(Status::new(504, "Timeout", message))
        })
    }
}

async fn wait_until_visible(request: &ResourceRequest, mut watcher: CacheWatcher, key: &str) -> Result<Value, Status> {
    loop {
        for change in watcher.take_changes(usize::MAX).map_err(Status::internal_error)? {
            if **change.key() == *key
                && let Some(became) = visible_object(request, &change)?
            {
                return Ok(became);
            }
        }
        watcher.wait_for_change().await;
    }
}

/// The object after `change`, once it is initialized.
fn visible_object(request: &ResourceRequest, change: &CachedChange) -> Result<Option<Value>, Status> {
    let Some(item) = change.item.as_ref().or(change.previous.as_ref()) else { return Ok(None) };
    let object = document::decode_record(&item.record).map_err(Status::internal_error)?;
    if let Some(status) = rejection_status(&object) {
        return Err(status);
    }
    if change.item.is_none() {
        return Err(Status::internal_error("object deleted while waiting for creation"));
    }
    Ok((!is_pending(&object)).then(|| convert::convert_to(&request.resource, object)))
}
