//! Keeps etcd's history short: of all API servers on a cluster, one at a time compacts what is older than an interval.
//!
//! They agree through one key, as kube-apiserver's do, so that ours and theirs can work on the same etcd.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};

use super::{Etcd, engine, header_revision};
use crate::{Error, Revision, Store};

/// kube-apiserver's name for it.
const KEY: &str = "compact_rev_key";

impl Etcd {
    /// Forgets, again and again, the history that is older than `keep`, until it is dropped. kube-apiserver keeps 5
    /// minutes. A failure is logged and tried again after the next interval.
    pub async fn keep_compacted(&self, keep: Duration) {
        let mut turn = Turn::default();
        loop {
            tokio::time::sleep(keep).await;
            match self.take_turn(turn).await {
                Ok(next) => turn = next,
                Err(error) => tracing::warn!(%error, "etcd cannot be compacted"),
            }
        }
    }

    /// Compacts to where the last turn was, if nobody else did in between.
    async fn take_turn(&self, turn: Turn) -> Result<Turn, Error> {
        let mine = Compare::version(KEY, CompareOp::Equal, turn.version);
        let put = TxnOp::put(KEY, turn.revision.to_string(), None);
        let txn = Txn::new().when([mine]).and_then([put]).or_else([TxnOp::get(KEY, Some(GetOptions::new()))]);
        let response = self.client.kv_client().txn(txn).await.map_err(engine)?;
        let revision = header_revision(response.header())?;
        if response.succeeded() {
            self.compact(turn.revision).await?;
            return Ok(Turn { version: turn.version + 1, revision });
        }
        let found = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(|kv| kv.version()),
            _ => None,
        });
        Ok(Turn { version: found.unwrap_or(0), revision })
    }
}

/// What was true at the last turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    /// How often anybody compacted.
    version: i64,
    revision: Revision,
}
