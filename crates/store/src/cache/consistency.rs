//! The consistency check: compares a digest of every collection with the engine's at the same revision.

use sha2::{Digest, Sha256};

use super::{WatchCache, collection::CachedCollection};
use crate::{ListOptions, Record, Revision, StoreError};

/// Attempts per collection when the engine compacts the revision meanwhile.
const ATTEMPTS: usize = 10;

/// The result for one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// Its name.
    pub collection: String,
    /// The revision that both were read at.
    pub revision: Revision,
    /// The number of cached records.
    pub records: usize,
    /// The digest of the cache's records.
    pub cache_digest: String,
    /// The digest of the engine's records.
    pub engine_digest: String,
}

impl ConsistencyReport {
    /// Whether the digests are equal.
    pub fn is_consistent(&self) -> bool {
        self.cache_digest == self.engine_digest
    }
}

impl WatchCache {
    /// Compares every collection with the engine.
    pub async fn check_consistency(&self) -> Result<Vec<ConsistencyReport>, StoreError> {
        let mut checked = Vec::new();
        for (name, collection) in self.shared.collections() {
            checked.push(self.check_collection(&name, &collection).await?);
        }
        Ok(checked)
    }

    async fn check_collection(
        &self,
        name: &str,
        collection: &CachedCollection,
    ) -> Result<ConsistencyReport, StoreError> {
        let mut attempts = ATTEMPTS;
        loop {
            let (records, revision) = collection.all_records(self.shared.published());
            let range = ListOptions { prefix: name.to_owned(), at: Some(revision), ..ListOptions::default() };
            match self.engine.list(range).await {
                Err(StoreError::Compacted { .. }) if attempts > 0 => attempts -= 1,
                page => {
                    return Ok(ConsistencyReport {
                        collection: name.to_owned(),
                        revision,
                        records: records.len(),
                        cache_digest: digest_records(&records),
                        engine_digest: digest_records(&page?.records),
                    });
                }
            }
        }
    }
}

fn digest_records(records: &[Record]) -> String {
    let mut digest = Sha256::new();
    for record in records {
        digest.update(record.revision.to_le_bytes());
        for part in [record.key.as_bytes(), &record.value] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
