//! Writes to the status of CRDs.

use api::{Value, meta, status::Status};
use apiserver_core::{loopback::ObjectKey, storage::ObjectStorage};

use super::crd_index::CrdSummary;

/// Updates the status of a CRD; does nothing if the CRD is deleted or has been recreated with another UID.
pub async fn update_crd_status(
    storage: &dyn ObjectStorage,
    summary: &CrdSummary,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), Status> {
    let key = ObjectKey { resource: super::crd_resource()?, namespace: "", name: &summary.name };
    let mut edit = |current: &Value| {
        let mut crd = current.clone();
        if meta::uid(current) == summary.uid {
            change(&mut crd);
        }
        Ok(crd)
    };
    let written = storage.edit_status(key, &mut edit).await;
    match written {
        Err(status) if status.is_not_found() => Ok(()),
        written => written.map(drop),
    }
}
