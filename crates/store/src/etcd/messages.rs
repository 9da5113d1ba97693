//! The messages of etcd's v3 API that the store sends and receives, with the names and numbers of its `rpc.proto`.
//!
//! Only the fields that are used are declared; decoding skips the others.

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = 3)]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
    #[prost(int64, tag = 2)]
    pub create_revision: i64,
    #[prost(int64, tag = 3)]
    pub mod_revision: i64,
    #[prost(int64, tag = 4)]
    pub version: i64,
    #[prost(bytes = "vec", tag = 5)]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = 2)]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = 3)]
    pub limit: i64,
    #[prost(int64, tag = 4)]
    pub revision: i64,
    #[prost(bool, tag = 9)]
    pub count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = 1)]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = 2)]
    pub kvs: Vec<KeyValue>,
    #[prost(int64, tag = 4)]
    pub count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
    #[prost(bytes = "bytes", tag = 2)]
    pub value: bytes::Bytes,
    #[prost(int64, tag = 3)]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "RequestKind", tags = "1, 2, 3")]
    pub request: Option<RequestKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum RequestKind {
    #[prost(message, tag = 1)]
    Range(RangeRequest),
    #[prost(message, tag = 2)]
    Put(PutRequest),
    #[prost(message, tag = 3)]
    DeleteRange(DeleteRangeRequest),
}

/// The result of one operation of a transaction; only that of a read carries data that is used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = 1)]
    pub response_range: Option<RangeResponse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum CompareTarget {
    Version = 0,
    Mod = 2,
}

/// A comparison for equality, which is the default of its field 1.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EqualityCompare {
    #[prost(enumeration = "CompareTarget", tag = 2)]
    pub target: i32,
    #[prost(bytes = "vec", tag = 3)]
    pub key: Vec<u8>,
    #[prost(oneof = "TargetUnion", tags = "4, 6")]
    pub target_union: Option<TargetUnion>,
}

impl EqualityCompare {
    pub fn version(key: Vec<u8>, version: i64) -> Self {
        Self { target: CompareTarget::Version as i32, key, target_union: Some(TargetUnion::Version(version)) }
    }

    pub fn mod_revision(key: Vec<u8>, revision: i64) -> Self {
        Self { target: CompareTarget::Mod as i32, key, target_union: Some(TargetUnion::ModRevision(revision)) }
    }
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum TargetUnion {
    #[prost(int64, tag = 4)]
    Version(i64),
    #[prost(int64, tag = 6)]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = 1)]
    pub compare: Vec<EqualityCompare>,
    #[prost(message, repeated, tag = 2)]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = 3)]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = 1)]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = 2)]
    pub succeeded: bool,
    #[prost(message, repeated, tag = 3)]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = 1)]
    pub revision: i64,
    #[prost(bool, tag = 2)]
    pub physical: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionResponse {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    /// Seconds.
    #[prost(int64, tag = 1)]
    pub ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = 2)]
    pub id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = 2)]
    pub version: String,
    #[prost(int64, tag = 3)]
    pub db_size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchRequestUnion", tags = "1, 3")]
    pub request_union: Option<WatchRequestUnion>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchRequestUnion {
    #[prost(message, tag = 1)]
    Create(WatchCreateRequest),
    #[prost(message, tag = 3)]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = 2)]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = 3)]
    pub start_revision: i64,
    #[prost(bool, tag = 4)]
    pub progress_notify: bool,
    #[prost(bool, tag = 6)]
    pub prev_kv: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = 1)]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = 3)]
    pub created: bool,
    #[prost(bool, tag = 4)]
    pub canceled: bool,
    #[prost(int64, tag = 5)]
    pub compact_revision: i64,
    #[prost(string, tag = 6)]
    pub cancel_reason: String,
    #[prost(message, repeated, tag = 11)]
    pub events: Vec<WatchEvent>,
}

/// `mvccpb.Event`. Its type follows from the key-value: a deletion has no creation revision.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchEvent {
    #[prost(message, optional, tag = 2)]
    pub kv: Option<KeyValue>,
    #[prost(message, optional, tag = 3)]
    pub prev_kv: Option<KeyValue>,
}
