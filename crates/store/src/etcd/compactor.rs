//! Keeps etcd's history short: of all API servers on a cluster, one at a time compacts what is older than an interval.
//!
//! They agree through one key, as kube-apiserver's do, so that ours and theirs can work on the same etcd.

use std::time::Duration;

use super::{
    Etcd, engine, header_revision,
    messages::{Compare, PutRequest, Request},
    put_if,
};
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
        let key = KEY.as_bytes().to_vec();
        let put = PutRequest { key: key.clone(), value: turn.revision.to_string().into(), lease: 0 };
        let request = put_if(Compare::version(key.clone(), turn.version), Request::Put(put), key);
        let response = self.client.txn(request).await.map_err(engine)?;
        let revision = header_revision(response.header)?;
        if response.succeeded {
            self.compact(turn.revision).await?;
            return Ok(Turn { version: turn.version + 1, revision });
        }
        let range = response.responses.into_iter().find_map(|response| response.response_range);
        let found = range.and_then(|range| range.kvs.first().map(|kv| kv.version));
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
