//! Waits until a created object is initialized.

use api::{Value, convert, meta, status::Status};
use apiserver_core::{
    document,
    initializers::{is_pending, rejection, wants_all},
    request::ResourceRequest,
};
use store::{CacheWatcher, CachedChange};

use crate::Registry;

impl Registry {
    /// Waits until an object that was just created is initialized, and returns it as it is then.
    pub async fn initialized(&self, target: &ResourceRequest, object: Value) -> Result<Value, Status> {
        if !is_pending(&object) || wants_all(target) {
            return Ok(object);
        }
        let key = document::storage_key(&target.resource, meta::namespace(&object), meta::name(&object));
        let after = meta::string_at(&object, &["metadata", "resourceVersion"]).parse().unwrap_or_default();
        let watcher = self.cache().watch_prefix(&key, after).map_err(Status::internal_error)?;
        let became = wait(target, watcher, &key);
        tokio::time::timeout(self.initialization(), became).await.unwrap_or_else(|_| {
            let (resource, name) = (target.resource.qualified_name(), meta::name(&object));
            let message = format!("Timeout: server has timed out waiting for the initialization of {resource} {name}");
            Err(Status { code: 504, reason: "Timeout", message, details: None, continue_token: None })
        })
    }
}

async fn wait(target: &ResourceRequest, mut watcher: CacheWatcher, key: &str) -> Result<Value, Status> {
    loop {
        for change in watcher.take_changes(usize::MAX).map_err(Status::internal_error)? {
            if **change.key() == *key
                && let Some(became) = became(target, &change)?
            {
                return Ok(became);
            }
        }
        watcher.wait_for_change().await;
    }
}

/// The object, if a change has made it visible.
fn became(target: &ResourceRequest, change: &CachedChange) -> Result<Option<Value>, Status> {
    let Some(item) = change.item.as_ref().or(change.previous.as_ref()) else { return Ok(None) };
    let object = document::decode_record(&item.record).map_err(Status::internal_error)?;
    if let Some(status) = rejection(&object) {
        return Err(status);
    }
    if change.item.is_none() {
        return Err(Status::internal_error("object deleted while waiting for creation"));
    }
    Ok((!is_pending(&object)).then(|| convert::convert_to(&target.resource, object)))
}
