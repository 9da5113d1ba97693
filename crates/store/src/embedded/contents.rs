//! All records of a store as of one revision, to write to a snapshot, restore from one, or copy into another engine.
//!
//! A snapshot file is a checkpoint under a name of the user's: checked part by part, complete or not there at all.

use std::{
    fs::{self, File},
    path::Path,
};

use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::{
    SharedState,
    checkpoint::{self, CheckpointHead},
    engine_error,
    medium::DiskMedium,
    open,
    state::EngineState,
};
use crate::{ListOptions, Precondition, Record, Revision, Store, StoreError, WriteRequest};

const PAGE: usize = 1000;
/// Concurrent writes to another store.
const CONCURRENT_WRITES: usize = 64;
/// Attempts to read a store that compacts meanwhile.
const ATTEMPTS: usize = 5;
/// The revision gap after a restore: clients may have seen later revisions, which must not be reused.
const RESTORED_REVISION_GAP: Revision = 1_000_000;

/// Records done, and their total.
pub type CopyProgress = (u64, u64);

/// The records of a store, with what is needed to make a store of them again.
pub struct StoreContents {
    shared: SharedState,
    revision: Revision,
}

impl StoreContents {
    /// Reads the store in a directory, even while another process writes it.
    pub fn read_dir(dir: &Path) -> Result<Self, StoreError> {
        let mut state = open::inspect_store(dir)?.state;
        let revision = state.revision();
        // The history is not needed.
        drop(state.trim_history(revision));
        Ok(Self { shared: SharedState::new(state), revision })
    }

    /// Reads any store as of its newest revision.
    pub async fn read_store(
        store: &dyn Store,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<Self, StoreError> {
        let mut attempts = ATTEMPTS;
        loop {
            match Self::read_store_once(store, progress).await {
                Err(StoreError::Compacted { .. }) if attempts > 0 => attempts -= 1,
                read => return read,
            }
        }
    }

    async fn read_store_once(
        store: &dyn Store,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<Self, StoreError> {
        let mut range = ListOptions { limit: Some(PAGE), ..ListOptions::default() };
        let mut records = Vec::new();
        loop {
            let page = store.list(range.clone()).await?;
            range.at = Some(page.revision);
            range.after = page.records.last().map(|record| record.key.to_string());
            records.extend(page.records);
            progress((records.len() as u64, (records.len() + page.remaining) as u64));
            if page.remaining == 0 {
                let mut state = EngineState::new(page.revision);
                records.into_iter().for_each(|record| drop(state.restore_record(record, 0)));
                return Ok(Self { shared: SharedState::new(state), revision: page.revision });
            }
        }
    }

    /// Reads and verifies a snapshot file.
    pub fn read_snapshot(path: &Path) -> Result<Self, StoreError> {
        let mut records = Vec::new();
        let head = checkpoint::read_checkpoint(path, |_, revision, entry| {
            let value = bytes::Bytes::copy_from_slice(entry.value?);
            records.push((Record { key: entry.key.into(), value, revision }, entry.expires));
            Some(())
        });
        let revision = head.map_err(|refusal| StoreError::Unusable(refusal.to_string()))?.revision;
        let mut state = EngineState::new(revision);
        records.into_iter().for_each(|(record, expires)| drop(state.restore_record(record, expires)));
        Ok(Self { shared: SharedState::new(state), revision })
    }

    /// Writes a snapshot file, which must not exist.
    pub fn write_snapshot(&self, path: &Path) -> Result<u64, StoreError> {
        let unusable = |error: std::io::Error| StoreError::Unusable(format!("{}: {error}", path.display()));
        // Takes the name, so that no other file is replaced.
        File::create_new(path).map_err(unusable)?;
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let head = CheckpointHead { id: open::random_identity(), segment: 0, revision: self.revision };
        let written = checkpoint::write_checkpoint_file(&DiskMedium, Path::new(&new), path, head, &self.shared);
        written.map_err(|error| {
            // Both names are ours, and what they hold is of no use.
            let _ = (fs::remove_file(path), fs::remove_file(&new));
            unusable(error)
        })
    }

    /// Makes a new embedded store in a directory. Records keep their revisions; new ones come well after.
    pub fn create_dir(self, dir: &Path) -> Result<u64, StoreError> {
        let mut state = self.shared.write();
        drop(state.trim_history(self.revision + RESTORED_REVISION_GAP));
        let count = state.len() as u64;
        drop(state);
        open::create_with(dir, &self.shared)?;
        Ok(count)
    }

    /// Writes everything into an empty store; the records get new revisions there.
    pub async fn copy_to(
        &self,
        store: &dyn Store,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<u64, StoreError> {
        let found = store.list(ListOptions { limit: Some(1), ..ListOptions::default() }).await?;
        if let Some(record) = found.records.first() {
            let count = found.remaining + 1;
            return Err(StoreError::Unusable(format!(
                "the target has {count} records already, such as {}",
                record.key
            )));
        }
        let records = self.records_with_expiry();
        let total = records.len() as u64;
        let now = super::batch::unix_millis();
        let writes = records.into_iter().map(|(record, expires)| {
            let ttl = (expires != 0).then(|| std::time::Duration::from_millis(expires.saturating_sub(now).max(1000)));
            store.write(WriteRequest {
                key: record.key,
                precondition: Precondition::Absent,
                value: Some(record.value),
                ttl,
            })
        });
        let mut done = 0;
        let mut written = stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
        while written.try_next().await?.is_some() {
            done += 1;
            progress((done, total));
        }
        Ok(done)
    }

    fn records_with_expiry(&self) -> Vec<(Record, u64)> {
        let state = self.shared.read();
        let page = state.page_at(&ListOptions::default(), state.revision());
        page.records.into_iter().map(|record| (record.clone(), state.expires(record.revision))).collect()
    }

    /// The revision of the records.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.shared.read().len() as u64
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A digest of all keys and documents; the same for the same records in any engine.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for (record, _) in self.records_with_expiry() {
            for part in [record.key.as_bytes(), &record.value] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Runs work that blocks beside the caller's tasks.
    pub async fn run_blocking<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        tokio::task::spawn_blocking(work).await.map_err(engine_error)?
    }
}
