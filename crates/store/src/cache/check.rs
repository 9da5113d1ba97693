//! Whether the cache has what the engine has: a digest of every collection, compared with the engine's at the same revision.

use sha2::{Digest, Sha256};

use super::{Cache, collection::Collection};
use crate::{Error, Range, Record, Revision};

/// How often a collection is compared again when the engine forgets the revision meanwhile.
const ATTEMPTS: usize = 10;

/// One collection, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub collection: String,
    /// The revision that both were read at.
    pub revision: Revision,
    /// How many records the cache has.
    pub records: usize,
    /// The digest of the cache's records.
    pub cache: String,
    /// The digest of the engine's records.
    pub engine: String,
}

impl Checked {
    /// Whether both have the same.
    pub fn agrees(&self) -> bool {
        self.cache == self.engine
    }
}

impl Cache {
    /// Compares every collection with the engine.
    pub async fn check(&self) -> Result<Vec<Checked>, Error> {
        let mut checked = Vec::new();
        for (name, collection) in self.shared.collections() {
            checked.push(self.check_one(&name, &collection).await?);
        }
        Ok(checked)
    }

    async fn check_one(&self, name: &str, collection: &Collection) -> Result<Checked, Error> {
        let mut attempts = ATTEMPTS;
        loop {
            let (records, revision) = collection.records(self.shared.published());
            let range = Range { prefix: name.to_owned(), at: Some(revision), ..Range::default() };
            match self.engine.list(range).await {
                Err(Error::Compacted { .. }) if attempts > 0 => attempts -= 1,
                page => {
                    return Ok(Checked {
                        collection: name.to_owned(),
                        revision,
                        records: records.len(),
                        cache: digest(&records),
                        engine: digest(&page?.records),
                    });
                }
            }
        }
    }
}

fn digest(records: &[Record]) -> String {
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
