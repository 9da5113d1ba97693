//! Compacts etcd's history: of all API servers on a cluster, one at a time compacts revisions older than an interval.
//!
//! They coordinate through kube-apiserver's key, so that both can run on the same etcd.

use std::time::Duration;

use super::{
    EtcdStore, compare_and_apply, engine_error, header_revision,
    messages::{EqualityCompare, PutRequest, RequestKind},
};
use crate::{Revision, Store, StoreError};

/// kube-apiserver's key.
const COMPACT_REVISION_KEY: &str = "compact_rev_key";

impl EtcdStore {
    /// Compacts history older than `keep` periodically, until the future is dropped. kube-apiserver keeps 5 minutes. A
    /// failure is logged and retried after the next interval.
    pub async fn run_compactor(&self, keep: Duration) {
        let mut turn = CompactionTurn::default();
        loop {
            tokio::time::sleep(keep).await;
            match self.compact_in_turn(turn).await {
                Ok(next) => turn = next,
                Err(error) => {
                    tracing::warn!(%error, "etcd compactor: compaction failed, retrying after the next interval")
                }
            }
        }
    }

    /// Compacts to the revision of the last turn, unless another API server did in between.
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

/// The state at the last turn.
#[derive(Clone, Copy, Default)]
struct CompactionTurn {
    /// The version of the key: the number of compactions by all API servers.
    version: i64,
    revision: Revision,
}
