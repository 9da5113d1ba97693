//! The etcd engine: the same promises over an etcd v3 cluster, in the layout that kube-apiserver uses.
//!
//! Documents are opaque bytes: protobuf that kube-apiserver wrote is returned as protobuf, and the caller decodes it.
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
        CompactionRequest, DeleteRangeRequest, EqualityCompare, KeyValue, LeaseGrantRequest, PutRequest, RangeRequest,
        RangeResponse, RequestKind, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
    },
    retry::{CallKind, retry_call},
};
pub use self::{connect::EtcdOptions, layout::KeyLayout};
use crate::{
    ListOptions, ListPage, Precondition, Record, Revision, Store, StoreError, WatchItems, WatchOptions, WriteRequest,
};

/// Records per range request.
const PAGE_RECORDS: usize = 1000;

/// A store in an etcd cluster.
#[derive(Clone)]
pub struct EtcdStore {
    client: EtcdClient,
    layout: Arc<KeyLayout>,
    /// Whether the servers' responses to progress requests are reliable.
    supports_progress_requests: bool,
}

impl EtcdStore {
    /// Connects and checks that the cluster responds; writes nothing.
    pub async fn open(options: EtcdOptions) -> Result<Self, StoreError> {
        connect::connect_store(options).await
    }

    async fn read_range(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        at: Revision,
    ) -> Result<RangeResponse, StoreError> {
        let (key, range_end) = (start.to_vec(), end.to_vec());
        let request = RangeRequest { key, range_end, limit: limit as i64, revision: at as i64, count_only: false };
        match self.send_range(request).await {
            Ok(response) => Ok(response),
            Err(status) => Err(self.classify_out_of_range(status, at).await),
        }
    }

    async fn send_range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        retry_call(CallKind::Read, || self.client.range(request.clone())).await
    }

    /// Converts `OutOfRange`, which etcd uses for compacted and future revisions alike, by the current revision.
    async fn classify_out_of_range(&self, status: Status, requested: Revision) -> StoreError {
        if status.code() != tonic::Code::OutOfRange {
            return engine_error(status);
        }
        match self.revision().await {
            Ok(current) if requested > current => StoreError::Future { requested, current },
            Ok(_) => StoreError::Compacted {
                requested,
                oldest: watch::find_oldest_revision(self, requested).await.unwrap_or(requested + 1),
            },
            Err(error) => error,
        }
    }

    /// `None` if the key is not one of this layout.
    fn to_record(&self, kv: KeyValue) -> Option<Record> {
        let key = self.layout.to_ours(str::from_utf8(&kv.key).ok()?)?;
        Some(Record { key: key.into(), value: Bytes::from(kv.value), revision: kv.mod_revision as Revision })
    }

    /// The record that the `else` branch of a transaction read.
    fn record_from_txn(&self, response: TxnResponse) -> Option<Record> {
        let range = response.responses.into_iter().find_map(|response| response.response_range)?;
        self.to_record(range.kvs.into_iter().next()?)
    }

    async fn grant_lease(&self, ttl: Option<Duration>) -> Result<Option<i64>, StoreError> {
        let Some(ttl) = ttl else { return Ok(None) };
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: seconds.max(1) as i64 };
        // A second grant after a lost response leaves an unused lease, which expires.
        let lease = retry_call(CallKind::Read, || self.client.grant_lease(request)).await.map_err(engine_error)?;
        Ok(Some(lease.id))
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        let key = self.layout.to_etcd(key).into_bytes();
        let response = self.send_range(RangeRequest { key, ..RangeRequest::default() }).await.map_err(engine_error)?;
        Ok(response.kvs.into_iter().next().and_then(|kv| self.to_record(kv)))
    }

    /// Lists in the order of etcd's keys, which within one resource is the order of store keys.
    async fn list(&self, range: ListOptions) -> Result<ListPage, StoreError> {
        let prefix = self.layout.to_etcd(&range.prefix);
        let end = after_prefix(prefix.as_bytes());
        let mut start = prefix.into_bytes();
        if let Some(after) = &range.after {
            start = start.max(next_key(self.layout.to_etcd(after).into_bytes()));
        }
        let limit = range.limit.unwrap_or(usize::MAX);
        // To etcd, 0 is now, and 1 is before the first write.
        let revision = range.at.map_or(0, |at| at.max(1));
        let mut page = ListPage { records: Vec::new(), revision, remaining: 0 };
        loop {
            let wanted = (limit - page.records.len()).clamp(1, PAGE_RECORDS);
            let response = self.read_range(&start, &end, wanted, page.revision).await?;
            if page.revision == 0 {
                page.revision = header_revision(response.header)?;
            }
            let kvs = response.kvs;
            let Some(last) = kvs.last() else { return Ok(page) };
            start = next_key(last.key.clone());
            page.remaining = (response.count as usize).saturating_sub(if limit > 0 { kvs.len() } else { 0 });
            if limit > 0 {
                page.records.extend(kvs.into_iter().filter_map(|kv| self.to_record(kv)));
            }
            if page.remaining == 0 || page.records.len() >= limit {
                return Ok(page);
            }
        }
    }

    async fn write(&self, write: WriteRequest) -> Result<Revision, StoreError> {
        let key = self.layout.to_etcd(&write.key).into_bytes();
        let revision = match write.precondition {
            Precondition::Absent => 0,
            Precondition::Revision(revision) => revision as i64,
        };
        let then = match &write.value {
            None => RequestKind::DeleteRange(DeleteRangeRequest { key: key.clone() }),
            Some(value) => {
                let lease = self.grant_lease(write.ttl).await?.unwrap_or(0);
                RequestKind::Put(PutRequest { key: key.clone(), value: value.clone(), lease })
            }
        };
        let request = compare_and_apply(EqualityCompare::mod_revision(key.clone(), revision), then, key);
        let response = retry_call(CallKind::Write, || self.client.txn(request.clone())).await.map_err(engine_error)?;
        if response.succeeded {
            return header_revision(response.header);
        }
        let current = self.record_from_txn(response);
        Err(StoreError::Conflict { key: write.key, precondition: write.precondition, current })
    }

    async fn watch_items(&self, follow: WatchOptions) -> Result<WatchItems, StoreError> {
        watch::watch_items(self.clone(), follow).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let request = RangeRequest { key: b"revision".into(), count_only: true, ..RangeRequest::default() };
        let response = self.send_range(request).await.map_err(engine_error)?;
        header_revision(response.header)
    }

    async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        if through == 0 {
            return Ok(());
        }
        let request = CompactionRequest { revision: through as i64, physical: true };
        // Compaction is idempotent.
        match retry_call(CallKind::Read, || self.client.compact(request)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == tonic::Code::OutOfRange => match self.revision().await? {
                current if through > current => Err(StoreError::Future { requested: through, current }),
                // It is done already.
                _ => Ok(()),
            },
            Err(status) => Err(engine_error(status)),
        }
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        // A read that needs a majority.
        self.revision().await.map(|_| ())
    }

    async fn disk_usage(&self) -> Result<u64, StoreError> {
        let status = self.client.status().await.map_err(engine_error)?;
        Ok(status.db_size.try_into().unwrap_or(0))
    }

    fn supports_progress_requests(&self) -> bool {
        self.supports_progress_requests
    }
}

fn header_revision(header: Option<ResponseHeader>) -> Result<Revision, StoreError> {
    let header = header.ok_or_else(|| StoreError::Engine("etcd answered without a revision".into()))?;
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
fn compare_and_apply(compare: EqualityCompare, then: RequestKind, key: Vec<u8>) -> TxnRequest {
    let read = RequestKind::Range(RangeRequest { key, ..RangeRequest::default() });
    let operation = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest { compare: vec![compare], success: operation(then), failure: operation(read) }
}

fn engine_error(status: Status) -> StoreError {
    StoreError::Engine(Box::new(status))
}
