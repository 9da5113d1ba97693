//! The etcd engine: the same promises over an etcd v3 cluster, in the layout that kube-apiserver uses.
//!
//! Documents stay bytes: what kube-apiserver wrote as protobuf comes back as protobuf, and decoding it is the caller's.
//! A lease is granted for each document with a time to live, so that every change has a revision of its own.

mod client;
mod compactor;
mod connect;
mod layout;
mod messages;
mod retry;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tonic::Status;

use self::{
    client::EtcdClient,
    messages::{
        CompactionRequest, Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, PutRequest, RangeRequest,
        RangeResponse, Request, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
    },
    retry::{Call, retried},
};
pub use self::{connect::EtcdOptions, layout::Layout};
use crate::{Error, Follow, Guard, Notices, Page, Range, Record, Revision, Store, Write};

/// How many records are asked for at once.
const PAGE: usize = 1000;

/// A store in an etcd cluster.
#[derive(Clone)]
pub struct Etcd {
    client: EtcdClient,
    layout: Arc<Layout>,
    /// Whether the servers answer a request for progress truly.
    asks_progress: bool,
}

impl Etcd {
    /// Connects and makes sure that the cluster answers. Nothing is written.
    pub async fn open(options: EtcdOptions) -> Result<Self, Error> {
        connect::connect(options).await
    }

    async fn range(&self, start: &[u8], end: &[u8], limit: usize, at: Revision) -> Result<RangeResponse, Error> {
        let (key, range_end) = (start.to_vec(), end.to_vec());
        let request = RangeRequest { key, range_end, limit: limit as i64, revision: at as i64, count_only: false };
        match self.read(request).await {
            Ok(response) => Ok(response),
            Err(status) => Err(self.out_of_range(status, at).await),
        }
    }

    async fn read(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        retried(Call::Read, || self.client.range(request.clone())).await
    }

    /// etcd has one code for the past and the future; which one it is follows from the revision.
    async fn out_of_range(&self, status: Status, requested: Revision) -> Error {
        if status.code() != tonic::Code::OutOfRange {
            return engine(status);
        }
        match self.revision().await {
            Ok(current) if requested > current => Error::Future { requested, current },
            Ok(_) => {
                Error::Compacted { requested, oldest: watch::oldest(self, requested).await.unwrap_or(requested + 1) }
            }
            Err(error) => error,
        }
    }

    /// `None` if the key is not one of this layout.
    fn record(&self, kv: KeyValue) -> Option<Record> {
        let key = self.layout.to_ours(str::from_utf8(&kv.key).ok()?)?;
        Some(Record { key: key.into(), value: Bytes::from(kv.value), revision: kv.mod_revision as Revision })
    }

    /// The record that the `else` branch of a transaction read.
    fn record_from_txn(&self, response: TxnResponse) -> Option<Record> {
        let range = response.responses.into_iter().find_map(|response| response.response_range)?;
        self.record(range.kvs.into_iter().next()?)
    }

    async fn lease(&self, ttl: Option<Duration>) -> Result<Option<i64>, Error> {
        let Some(ttl) = ttl else { return Ok(None) };
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: seconds.max(1) as i64 };
        // A second grant after a lost response leaves an unused lease, which expires.
        let lease = retried(Call::Read, || self.client.grant_lease(request)).await.map_err(engine)?;
        Ok(Some(lease.id))
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        let key = self.layout.to_etcd(key).into_bytes();
        let response = self.read(RangeRequest { key, ..RangeRequest::default() }).await.map_err(engine)?;
        Ok(response.kvs.into_iter().next().and_then(|kv| self.record(kv)))
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
                page.revision = header_revision(response.header)?;
            }
            let kvs = response.kvs;
            let Some(last) = kvs.last() else { return Ok(page) };
            start = next_key(last.key.clone());
            page.remaining = (response.count as usize).saturating_sub(if limit > 0 { kvs.len() } else { 0 });
            if limit > 0 {
                page.records.extend(kvs.into_iter().filter_map(|kv| self.record(kv)));
            }
            if page.remaining == 0 || page.records.len() >= limit {
                return Ok(page);
            }
        }
    }

    async fn write(&self, write: Write) -> Result<Revision, Error> {
        let key = self.layout.to_etcd(&write.key).into_bytes();
        let revision = match write.guard {
            Guard::Absent => 0,
            Guard::Revision(revision) => revision as i64,
        };
        let then = match &write.value {
            None => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
            Some(value) => {
                let lease = self.lease(write.ttl).await?.unwrap_or(0);
                Request::Put(PutRequest { key: key.clone(), value: value.clone(), lease })
            }
        };
        let request = put_if(Compare::mod_revision(key.clone(), revision), then, key);
        let response = retried(Call::Write, || self.client.txn(request.clone())).await.map_err(engine)?;
        if response.succeeded {
            return header_revision(response.header);
        }
        let current = self.record_from_txn(response);
        Err(Error::Conflict { key: write.key, guard: write.guard, current })
    }

    async fn follow(&self, follow: Follow) -> Result<Notices, Error> {
        watch::follow(self.clone(), follow).await
    }

    async fn revision(&self) -> Result<Revision, Error> {
        let request = RangeRequest { key: b"revision".into(), count_only: true, ..RangeRequest::default() };
        let response = self.read(request).await.map_err(engine)?;
        header_revision(response.header)
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        if through == 0 {
            return Ok(());
        }
        let request = CompactionRequest { revision: through as i64, physical: true };
        // Compaction is idempotent.
        match retried(Call::Read, || self.client.compact(request)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == tonic::Code::OutOfRange => match self.revision().await? {
                current if through > current => Err(Error::Future { requested: through, current }),
                // It is done already.
                _ => Ok(()),
            },
            Err(status) => Err(engine(status)),
        }
    }

    async fn health(&self) -> Result<(), Error> {
        // A read that needs a majority.
        self.revision().await.map(|_| ())
    }

    async fn size(&self) -> Result<u64, Error> {
        let status = self.client.status().await.map_err(engine)?;
        Ok(status.db_size.try_into().unwrap_or(0))
    }

    fn tells_progress(&self) -> bool {
        self.asks_progress
    }
}

fn header_revision(header: Option<ResponseHeader>) -> Result<Revision, Error> {
    let header = header.ok_or_else(|| Error::Engine("etcd answered without a revision".into()))?;
    Ok(header.revision as Revision)
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

/// A transaction that performs `then` if `compare` holds, and reads `key` otherwise.
fn put_if(compare: Compare, then: Request, key: Vec<u8>) -> TxnRequest {
    let read = Request::Range(RangeRequest { key, ..RangeRequest::default() });
    let operation = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest { compare: vec![compare], success: operation(then), failure: operation(read) }
}

fn engine(status: Status) -> Error {
    Error::Engine(Box::new(status))
}
