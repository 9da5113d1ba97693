//! The etcd engine: the same promises over an etcd v3 cluster, in the layout that kube-apiserver uses.
//!
//! Documents stay bytes: what kube-apiserver wrote as protobuf comes back as protobuf, and decoding it is the caller's.
//! A lease is granted for each document with a time to live, so that every change has a revision of its own.

mod compactor;
mod connect;
mod layout;
mod retry;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Client, CompactionOptions, Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, ResponseHeader, Txn,
    TxnOp, TxnOpResponse,
};

use self::retry::{Call, retried};
pub use self::{connect::EtcdOptions, layout::Layout};
use crate::{Error, Follow, Guard, Notices, Page, Range, Record, Revision, Store, Write};

/// How many records are asked for at once.
const PAGE: usize = 1000;
/// Messages may be as large as a page of large documents.
const MESSAGE: usize = 1 << 30;

/// A store in an etcd cluster.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
    layout: Arc<Layout>,
    /// Whether the servers answer a request for progress truly.
    asks_progress: bool,
}

impl Etcd {
    /// Connects and makes sure that the cluster answers. Nothing is written.
    pub async fn open(options: EtcdOptions) -> Result<Self, Error> {
        connect::connect(options).await
    }

    async fn range(&self, start: &[u8], end: &[u8], limit: usize, at: Revision) -> Result<GetResponse, Error> {
        let options = GetOptions::new().with_range(end).with_limit(limit as i64).with_revision(at as i64);
        match self.read(start, options).await {
            Ok(response) => Ok(response),
            Err(error) => Err(self.out_of_range(error, at).await),
        }
    }

    async fn read(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, etcd_client::Error> {
        retried(Call::Read, || {
            let mut kv = self.client.kv_client().max_decoding_message_size(MESSAGE);
            let options = options.clone();
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// etcd has one code for the past and the future; which one it is follows from the revision.
    async fn out_of_range(&self, error: etcd_client::Error, requested: Revision) -> Error {
        if !is_out_of_range(&error) {
            return engine(error);
        }
        match self.revision().await {
            Ok(current) if requested > current => Error::Future { requested, current },
            Ok(_) => {
                Error::Compacted { requested, oldest: watch::oldest(self, requested).await.unwrap_or(requested + 1) }
            }
            Err(error) => error,
        }
    }

    fn record(&self, kv: &KeyValue) -> Option<Record> {
        let key = self.layout.to_ours(kv.key_str().ok()?)?;
        let value = Bytes::copy_from_slice(kv.value());
        Some(Record { key: key.into(), value, revision: kv.mod_revision() as Revision })
    }

    async fn lease(&self, ttl: Option<Duration>) -> Result<Option<i64>, Error> {
        let Some(ttl) = ttl else { return Ok(None) };
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let grant = || {
            let mut leases = self.client.lease_client();
            async move { leases.grant(seconds.max(1) as i64, None).await }
        };
        // A lease that was granted twice expires twice; nothing hangs on the other.
        let lease = retried(Call::Read, grant).await.map_err(engine)?;
        Ok(Some(lease.id()))
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        let key = self.layout.to_etcd(key);
        let response = self.read(key.as_bytes(), GetOptions::new()).await.map_err(engine)?;
        Ok(response.kvs().first().and_then(|kv| self.record(kv)))
    }

    /// In the order of etcd's keys, which within one resource is that of ours.
    async fn list(&self, range: Range) -> Result<Page, Error> {
        let prefix = self.layout.to_etcd(&range.prefix);
        let end = after_prefix(prefix.as_bytes());
        let mut start = prefix.into_bytes();
        if let Some(after) = &range.after {
            start = start.max(next_key(self.layout.to_etcd(after).into_bytes()));
        }
        let limit = range.limit.unwrap_or(usize::MAX);
        // To etcd, 0 is now, and 1 is before the first write.
        let revision = range.at.map_or(0, |at| at.max(1));
        let mut page = Page { records: Vec::new(), revision, remaining: 0 };
        loop {
            let wanted = (limit - page.records.len()).clamp(1, PAGE);
            let response = self.range(&start, &end, wanted, page.revision).await?;
            if page.revision == 0 {
                page.revision = header_revision(response.header())?;
            }
            let kvs = response.kvs();
            let Some(last) = kvs.last() else { return Ok(page) };
            start = next_key(last.key().to_vec());
            if limit > 0 {
                page.records.extend(kvs.iter().filter_map(|kv| self.record(kv)));
            }
            page.remaining = (response.count() as usize).saturating_sub(if limit > 0 { kvs.len() } else { 0 });
            if page.remaining == 0 || page.records.len() >= limit {
                return Ok(page);
            }
        }
    }

    async fn write(&self, write: Write) -> Result<Revision, Error> {
        let key = self.layout.to_etcd(&write.key);
        let revision = match write.guard {
            Guard::Absent => 0,
            Guard::Revision(revision) => revision as i64,
        };
        let holds = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
        let then = match &write.value {
            None => TxnOp::delete(key.clone(), None),
            Some(value) => {
                let lease = self.lease(write.ttl).await?;
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                TxnOp::put(key.clone(), &value[..], options)
            }
        };
        let txn = Txn::new().when([holds]).and_then([then]).or_else([TxnOp::get(key, None)]);
        let send = || {
            let mut kv = self.client.kv_client().max_encoding_message_size(MESSAGE).max_decoding_message_size(MESSAGE);
            let txn = txn.clone();
            async move { kv.txn(txn).await }
        };
        let response = retried(Call::Write, send).await.map_err(engine)?;
        if response.succeeded() {
            return header_revision(response.header());
        }
        let current = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().and_then(|kv| self.record(kv)),
            _ => None,
        });
        Err(Error::Conflict { key: write.key, guard: write.guard, current })
    }

    async fn follow(&self, follow: Follow) -> Result<Notices, Error> {
        watch::follow(self.clone(), follow).await
    }

    async fn revision(&self) -> Result<Revision, Error> {
        let response = self.read(b"revision", GetOptions::new().with_count_only()).await.map_err(engine)?;
        header_revision(response.header())
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        if through == 0 {
            return Ok(());
        }
        let compact = || {
            let mut kv = self.client.kv_client();
            async move { kv.compact(through as i64, Some(CompactionOptions::new().with_physical())).await }
        };
        // Done twice is done once.
        match retried(Call::Read, compact).await {
            Ok(_) => Ok(()),
            Err(error) if is_out_of_range(&error) => match self.revision().await? {
                current if through > current => Err(Error::Future { requested: through, current }),
                // It is done already.
                _ => Ok(()),
            },
            Err(error) => Err(engine(error)),
        }
    }

    async fn health(&self) -> Result<(), Error> {
        // A read that needs a majority.
        self.revision().await.map(|_| ())
    }

    async fn size(&self) -> Result<u64, Error> {
        let status = self.client.maintenance_client().status().await.map_err(engine)?;
        Ok(status.db_size().try_into().unwrap_or(0))
    }

    fn tells_progress(&self) -> bool {
        self.asks_progress
    }
}

fn header_revision(header: Option<&ResponseHeader>) -> Result<Revision, Error> {
    let header = header.ok_or_else(|| Error::Engine("etcd answered without a revision".into()))?;
    Ok(header.revision() as Revision)
}

/// The first key after this one.
fn next_key(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The first key after all that begin with `prefix`; a single zero, which to etcd is no end, if there is none.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn is_out_of_range(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == tonic::Code::OutOfRange)
}

fn engine(error: etcd_client::Error) -> Error {
    Error::Engine(Box::new(error))
}
