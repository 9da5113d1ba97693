//! Keeps etcd's history short: of all API servers on a cluster, one at a time compacts what is older than an interval.
//!
//! They agree through one key, as kube-apiserver's do, so that ours and theirs can work on the same etcd.

use std::time::Duration;

use super::{
    EtcdStore, compare_and_apply, engine_error, header_revision,
    messages::{EqualityCompare, PutRequest, RequestKind},
};
use crate::{Revision, Store, StoreError};

/// kube-apiserver's name for it.
const COMPACT_REVISION_KEY: &str = "compact_rev_key";

impl EtcdStore {
    /// Forgets, again and again, the history that is older than `keep`, until it is dropped. kube-apiserver keeps 5
    /// minutes. A failure is logged and tried again after the next interval.
    pub async fn run_compactor(&self, keep: Duration) {
        let mut turn = CompactionTurn::default();
        loop {
            tokio::time::sleep(keep).await;
            match self.compact_in_turn(turn).await {
                Ok(next) => turn = next,
                Err(error) => tracing::warn!(%error, "etcd cannot be compacted"),
            }
        }
    }

    /// Compacts to where the last turn was, if nobody else did in between.
    async fn compact_in_turn(&self, turn: CompactionTurn) -> Result<CompactionTurn, StoreError> {
        let key = COMPACT_REVISION_KEY.as_bytes().to_vec();
        let put = PutRequest { key: key.clone(), value: turn.revision.to_string().into(), lease: 0 };
        let request =
            compare_and_apply(EqualityCompare::version(key.clone(), turn.version), RequestKind::Put(put), key);
        let response = self.client.txn(request).await.map_err(engine_error)?;
        let revision = header_revision(response.header)?;
        if response.succeeded {
            self.compact(turn.revision).await?;
            return Ok(CompactionTurn { version: turn.version + 1, revision });
        }
        let range = response.responses.into_iter().find_map(|response| response.response_range);
        let found = range.and_then(|range| range.kvs.first().map(|kv| kv.version));
        Ok(CompactionTurn { version: found.unwrap_or(0), revision })
    }
}

/// What was true at the last turn.
#[derive(Clone, Copy, Default)]
struct CompactionTurn {
    /// How often anybody compacted.
    version: i64,
    revision: Revision,
}
